// gpu_ranks: starts the ranks of a program as a worker daemon does, with a link
// and a page each, and says what their pages had in the end.
//
//   gpu_ranks --ranks N --pages FILE [--timeout S] -- PROGRAM [ARGUMENT...]
//
// A rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, and RANK_FOLDER,
// a folder that all ranks share and that is removed in the end. FILE becomes a
// JSON list, with an object for each rank that has joined, and null for others.
// Exits as the first rank that fails, with 128 + N for signal N, and with 124
// when S seconds are over (default: 300): the other ranks are killed then.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "worker/collective/testing.h"
#include "worker/rank_link/testing.h"
#include "worker/runtime/session_test_util.h"
#include "worker/task/rank_page.h"

namespace lockstep {
namespace {

using worker::collective::RankProcesses;
using worker::rank_link::TempDir;
using worker::rank_link::TestDaemon;

constexpr int kExitUsage = 2;
constexpr int kExitTimeout = 124;
constexpr int kExitNotStarted = 127;
constexpr char kJob[] = "gpu-tests";
constexpr uint64_t kGeneration = 1;
// Of ranks whose peer has failed: to say so.
constexpr Duration kGrace = std::chrono::seconds(10);

struct Flags {
  int ranks = 0;
  int timeout_seconds = 300;
  std::string pages;
  std::vector<char*> command;  // Ends with null.
};

bool ParseFlags(int argc, char** argv, Flags* flags) {
  int i = 1;
  for (; i + 1 < argc && std::strcmp(argv[i], "--") != 0; i += 2) {
    const std::string name = argv[i];
    if (name == "--ranks") {
      flags->ranks = std::atoi(argv[i + 1]);
    } else if (name == "--timeout") {
      flags->timeout_seconds = std::atoi(argv[i + 1]);
    } else if (name == "--pages") {
      flags->pages = argv[i + 1];
    } else {
      return false;
    }
  }
  for (++i; i < argc; ++i) flags->command.push_back(argv[i]);
  flags->command.push_back(nullptr);
  return flags->ranks > 0 && flags->timeout_seconds > 0 &&
         !flags->pages.empty() && flags->command.size() > 1;
}

std::string PagePath(const TempDir& dir, int rank) {
  return fmt::format("{}/page-{}", dir.path(), rank);
}

// In a child: becomes the program.
int BecomeRank(const Flags& flags, const TempDir& dir, const std::string& link,
               int rank) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  worker::runtime::SetProgramEnvironment(
      fmt::format("{}/link-{}", dir.path(), rank), link, kJob, kGeneration,
      rank);
  for (const char* name : {"RANK", "LOCAL_RANK"}) {
    ::setenv(name, std::to_string(rank).c_str(), 1);
  }
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
    ::setenv(name, std::to_string(flags.ranks).c_str(), 1);
  }
  ::setenv("RANK_FOLDER", dir.path().c_str(), 1);
  ::execvp(flags.command[0], flags.command.data());
  fmt::print(stderr, "gpu_ranks: cannot start {}: {}\n", flags.command[0],
             std::strerror(errno));
  return kExitNotStarted;
}

void ExpectRank(const Flags& flags, const TempDir& dir, int rank,
                TestDaemon* daemon) {
  v1::RankWelcome welcome;
  welcome.set_program(true);
  welcome.set_role(rank == 0 ? "chief" : "worker");
  welcome.set_task_index(rank == 0 ? 0 : rank - 1);
  welcome.set_rank(rank);
  welcome.set_world_size(flags.ranks);
  welcome.set_local_rank(rank);
  welcome.set_local_size(flags.ranks);
  welcome.set_attempt(1);
  welcome.set_page_path(PagePath(dir, rank));
  daemon->Expect({kJob, kGeneration, rank}, worker::runtime::RankNonce(rank),
                 welcome);
}

// The exit code of the first rank that failed, else 0.
int JoinAll(const Flags& flags, RankProcesses* ranks) {
  MonoTime deadline =
      MonotonicNow() + std::chrono::seconds(flags.timeout_seconds);
  std::vector<bool> ended(flags.ranks, false);
  int left = flags.ranks;
  int code = 0;
  while (left > 0) {
    if (MonotonicNow() >= deadline) return code != 0 ? code : kExitTimeout;
    for (int rank = 0; rank < flags.ranks; ++rank) {
      if (ended[rank]) continue;
      const int its =
          ranks->Join(rank, MonotonicNow() + std::chrono::milliseconds(20));
      if (its < 0) continue;
      ended[rank] = true;
      --left;
      if (its == 0 || code != 0) continue;
      code = its;
      deadline = std::min(deadline, MonotonicNow() + kGrace);
    }
  }
  return code;
}

nlohmann::json PageJson(const std::string& path) {
  std::string error;
  const auto reader = worker::task::PageReader::Open(path, &error);
  worker::task::RankPage page;
  if (!reader || reader->ReadLast(&page, &error) !=
                     worker::task::PageReader::Result::kOk) {
    return nullptr;
  }
  nlohmann::json seconds;
  for (size_t i = 0; i < worker::task::kTimedPhases; ++i) {
    const auto phase = static_cast<worker::task::RankPhase>(i);
    seconds[worker::task::RankPhaseName(phase)] =
        page.counters.phase_seconds[i];
  }
  return {{"rank", page.progress.rank},
          {"seconds", seconds},
          {"steps", page.counters.steps_committed},
          {"samples", page.counters.samples}};
}

int Run(const Flags& flags) {
  const TempDir dir;
  TestDaemon daemon(dir.path() + "/link", nullptr);
  int code = 0;
  {
    // Before this process has threads.
    RankProcesses ranks(flags.ranks, [&](int rank) {
      return BecomeRank(flags, dir, daemon.path(), rank);
    });
    ::signal(SIGPIPE, SIG_IGN);
    for (int rank = 0; rank < flags.ranks; ++rank) {
      ExpectRank(flags, dir, rank, &daemon);
    }
    daemon.Start();
    code = JoinAll(flags, &ranks);
  }
  nlohmann::json pages = nlohmann::json::array();
  for (int rank = 0; rank < flags.ranks; ++rank) {
    pages.push_back(PageJson(PagePath(dir, rank)));
  }
  const Status written =
      RealFileSystem()->WriteAtomic(flags.pages, pages.dump(2) + "\n");
  if (!written.ok()) {
    fmt::print(stderr, "gpu_ranks: {}\n", Message(written));
    return code != 0 ? code : 1;
  }
  return code;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Flags flags;
  if (!lockstep::ParseFlags(argc, argv, &flags)) {
    std::fputs(
        "usage: gpu_ranks --ranks N --pages FILE [--timeout S] -- PROGRAM "
        "[ARGUMENT...]\n",
        stderr);
    return lockstep::kExitUsage;
  }
  return lockstep::Run(flags);
}
