// A native rank for tests, with the real end of the link and no training.
//
//   fake_rank ok      puts, gets, joins, waits for Go, reports, exits 0
//   fake_rank wait    the same, then waits for Abort and exits 75. In a rank
//   that
//                     is replaced: waits at once
//   fake_rank fail    joins, then fails with last words, the other one of two
//                     ranks as a lost peer
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/model/reduction_plan.h"
#include "worker/rank_link/client.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

MonoTime In(Duration d) { return MonotonicNow() + d; }

int Fail(const Status& status) {
  printf("fake_rank: %s\n", status.ToString().c_str());
  return 1;
}

// One that fits; of rank 1 none that makes sense.
std::string ReductionPlanOf(const v1::RankWelcome& welcome) {
  if (welcome.rank() != 0) return "nonsense";
  printf("plan \"%s\" pinned %d hosts %d\n", welcome.reduction_plan().c_str(),
         welcome.reduction_plan_pinned() ? 1 : 0, welcome.hosts());
  fflush(stdout);
  ReductionPlan plan;
  plan.ranks = 2;
  plan.hosts = 1;
  plan.bucket_bytes = plan.first_bucket_bytes = plan.last_bucket_bytes = 4096;
  plan.layout = "0123456789abcdef";
  return Format(plan).value();
}

void WritePage(const v1::RankWelcome& welcome) {
  std::string error;
  const auto page = task::PageWriter::Create(
      welcome.page_path(), static_cast<uint32_t>(welcome.rank()), &error);
  if (page == nullptr) {
    printf("fake_rank: %s\n", error.c_str());
    return;
  }
  task::RankProgress progress;
  progress.generation = welcome.generation();
  progress.step = 8;
  progress.last_committed = 7;
  progress.phase = task::RankPhase::kCompute;
  page->SetProgress(progress);
  task::RankCounters counters;
  counters.samples = 640;
  page->SetCounters(counters);
}

int RunRank(const std::string& mode) {
  auto identity = rank_link::RankIdentityFromEnvironment();
  if (!identity.ok()) return Fail(identity.status());
  if (!identity->has_value()) return Fail(NotFound("this is no rank"));
  std::atomic<bool> aborted{false};
  rank_link::RankLinkCallbacks callbacks;
  callbacks.abort = [&](const std::string& why) {
    printf("aborted: %s\n", why.c_str());
    fflush(stdout);
    aborted = true;
  };
  callbacks.directive = [](const v1::RankDirective& directive) {
    printf("directive %u\n", directive.id());
    fflush(stdout);
  };
  auto link = rank_link::RankLink::Connect(**identity, callbacks, In(10s));
  if (!link.ok()) return Fail(link.status());
  const v1::RankWelcome welcome = (*link)->welcome();
  WritePage(welcome);
  if (welcome.recovery() > 0) {
    printf("recovery %u\n", welcome.recovery());
    fflush(stdout);
    while (!aborted) std::this_thread::sleep_for(5ms);
    return 75;
  }
  const std::string own = std::to_string(welcome.rank());
  Status status = (*link)->Put("address/" + own, "value of " + own);
  if (!status.ok()) return Fail(status);
  for (int rank = 0; rank < welcome.world_size(); ++rank) {
    const auto value = (*link)->Get("address/" + std::to_string(rank), In(10s));
    if (!value.ok()) return Fail(value.status());
    printf("got \"%s\"\n", value->c_str());
  }
  (*link)->SendJoined(0, false);
  if (mode == "fail") {
    v1::RankReport report;
    report.set_failure("replicas differ");
    report.set_failure_reason(54);
    report.add_lost_peers(1 - welcome.rank());
    (*link)->Report(report);
    (void)(*link)->Flush(In(1s));
    return 1;
  }
  status = (*link)->WaitForGo(In(20s));
  if (!status.ok()) return Fail(status);
  printf("go\n");
  fflush(stdout);
  v1::RankReport report;
  report.set_checkpoint_step(7);
  report.set_checkpoint_path("/out/checkpoint-7");
  report.set_checkpoint_bytes(99);
  report.set_artifact_name("model");
  report.set_artifact_path("/out/model");
  report.set_event("half way");
  report.set_has_resumed_step(true);
  report.set_resumed_step(3);
  (*link)->Report(report);
  if (mode == "ok") {
    v1::RankReport plan;
    plan.set_reduction_plan(ReductionPlanOf(welcome));
    (*link)->Report(plan);
  }
  status = (*link)->Flush(In(5s));
  if (!status.ok()) return Fail(status);
  // There is nothing to wait on but a flag that another thread sets.
  while (mode == "wait" && !aborted) std::this_thread::sleep_for(5ms);
  return mode == "wait" ? 75 : 0;
}

}  // namespace
}  // namespace lockstep::worker::agent

// No search for leaks at its exit: that stops the process by ptrace. The
// SIGCONT of a stop that comes at this moment makes the search wait forever.
extern "C" int __lsan_is_turned_off() { return 1; }

int main(int argc, char** argv) {
  signal(SIGTERM, SIG_IGN);  // Abort comes over the link.
  return lockstep::worker::agent::RunRank(argc > 1 ? argv[1] : "ok");
}
