// A rank of a program for tests, which joins its job and reduces nothing.
//
//   light_rank [--steps N] [--phase NAME] [--until FILE] [--together PREFIX]
//              [--close] [--orders FILE]
//
// It joins, says so in a line, makes N steps of 20 ms (default: 3) in the phase
// (default: compute), reports one of everything, and goes on with steps until
// FILE exists. Rank 1 makes the steps in compute, whatever the phase. With
// --together the other ranks wait in each step for rank 1, which says by files
// PREFIX.GENERATION.STEP how far it is. With --close it leaves and then waits
// for FILE. With --orders it obeys orders: it says "due STEP" and "stop STEP",
// rank 0 saves by writing the step into FILE, and all begin after that step.
// Exits with 3 where it cannot join.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "worker/runtime/light_session.h"

namespace lockstep::worker::runtime {
namespace {

using std::chrono::milliseconds;

struct Flags {
  int steps = 3;
  std::string phase = "compute";
  std::string until;
  std::string together;
  std::string orders;
  bool close = false;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--close") flags.close = true;
    if (i + 1 == argc) break;
    if (name == "--steps") flags.steps = std::stoi(argv[++i]);
    if (name == "--phase") flags.phase = argv[++i];
    if (name == "--until") flags.until = argv[++i];
    if (name == "--orders") flags.orders = argv[++i];
    if (name == "--together") flags.together = argv[++i];
  }
  return flags;
}

Status Report(LightSession* session) {
  LOCKSTEP_RETURN_IF_ERROR(session->Report("accuracy", 0.75));
  LOCKSTEP_RETURN_IF_ERROR(session->ReportEvent("half way"));
  LOCKSTEP_RETURN_IF_ERROR(session->ReportArtifact("model", "/out/model.pt"));
  if (session->identity().rank != 0) return OkStatus();
  return session->ReportCheckpoint(3, "/out/3", 99);
}

void AwaitOthers(const Flags& flags, const LightSessionIdentity& identity,
                 int64_t step) {
  if (flags.together.empty()) return;
  const std::string file = flags.together + "." +
                           std::to_string(identity.generation) + "." +
                           std::to_string(step);
  if (identity.rank == 1) {
    std::ofstream(file) << "here";
    return;
  }
  while (!std::filesystem::exists(file) &&
         !std::filesystem::exists(flags.until)) {
    std::this_thread::sleep_for(milliseconds(5));
  }
}

// Whether to go on.
StatusOr<bool> Obey(const Flags& flags, LightSession* session, int64_t step) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool due, session->CheckpointDue());
  if (due) {
    std::printf("due %lld\n", static_cast<long long>(step));
    if (session->identity().rank == 0) {
      std::ofstream(flags.orders) << step;
      LOCKSTEP_RETURN_IF_ERROR(
          session->ReportCheckpoint(step, flags.orders, 8));
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const bool stop, session->ShouldStop());
  if (stop) std::printf("stop %lld\n", static_cast<long long>(step));
  std::fflush(stdout);
  return !stop;
}

Status RunOrders(const Flags& flags, LightSession* session) {
  int64_t step = 0;
  std::ifstream(flags.orders) >> step;
  LOCKSTEP_RETURN_IF_ERROR(session->ReportResumed(step));
  std::printf("start %lld\n", static_cast<long long>(step));
  bool go_on = true;
  while (go_on && !std::filesystem::exists(flags.until)) {
    LOCKSTEP_RETURN_IF_ERROR(
        session->Enter(task::RankPhase::kCompute).status());
    std::this_thread::sleep_for(milliseconds(20));
    LOCKSTEP_RETURN_IF_ERROR(session->Step({.step = ++step}));
    LOCKSTEP_ASSIGN_OR_RETURN(go_on, Obey(flags, session, step));
  }
  return session->Close();
}

Status Run(const Flags& flags, LightSession* session) {
  if (!flags.orders.empty()) return RunOrders(flags, session);
  task::RankPhase phase = task::RankPhase::kCompute;
  for (size_t i = 0; i < task::kTimedPhases; ++i) {
    const auto named = static_cast<task::RankPhase>(i);
    if (session->identity().rank != 1 &&
        flags.phase == task::RankPhaseName(named)) {
      phase = named;
    }
  }
  int64_t number = 0;
  const auto step = [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(session->Enter(phase).status());
    std::this_thread::sleep_for(milliseconds(20));
    AwaitOthers(flags, session->identity(), ++number);
    return session->Step({.samples = 8, .loss = 0.5, .learning_rate = 0.1});
  };
  for (int i = 0; i < flags.steps; ++i) LOCKSTEP_RETURN_IF_ERROR(step());
  LOCKSTEP_RETURN_IF_ERROR(Report(session));
  if (flags.close) LOCKSTEP_RETURN_IF_ERROR(session->Close());
  while (!flags.until.empty() && !std::filesystem::exists(flags.until)) {
    if (flags.close) {
      std::this_thread::sleep_for(milliseconds(20));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(step());
    }
  }
  return session->Close();
}

int Main(int argc, char** argv) {
  auto session = LightSession::Join({});
  if (!session.ok()) {
    std::printf("cannot join: %s\n", Message(session.status()).c_str());
    return 3;
  }
  const LightSessionIdentity& identity = (*session)->identity();
  std::printf("joined %s %d rank %d of %d\n", identity.role.c_str(),
              identity.task_index, identity.rank, identity.world_size);
  std::fflush(stdout);
  const Status ran = Run(ParseFlags(argc, argv), session->get());
  if (!ran.ok()) std::printf("failed: %s\n", Message(ran).c_str());
  return ran.ok() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::worker::runtime

int main(int argc, char** argv) {
  return lockstep::worker::runtime::Main(argc, argv);
}
