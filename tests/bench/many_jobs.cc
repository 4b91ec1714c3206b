#include "tests/bench/many_jobs.h"

#include <atomic>
#include <set>
#include <thread>

#include "common/base/mutex.h"

namespace lockstep {
namespace {

constexpr int kConnections = 4;

}  // namespace

StatusOr<double> RunManyJobs(
    BenchCluster* bench, const std::string& prefix, int count,
    const std::function<Status(Client*, const std::string& name)>& submit) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kConnections; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        clients.emplace_back(),
        Client::Connect(bench->cluster()->client_options()));
    // Connected before the clock starts.
    LOCKSTEP_RETURN_IF_ERROR(clients.back()->ListNodes().status());
  }
  Mutex mu;
  Status failed;  // The first.
  std::atomic<bool> stopped{false};
  StopToken stop;
  const auto fail = [&](const Status& status) {
    const MutexLock lock(&mu);
    if (failed.ok()) failed = status;
    stopped = true;
    stop.Stop();
  };
  std::set<std::string> ended;
  std::string bad;
  const int64_t start = MonotonicNanos();
  int64_t end = 0;
  std::thread watcher([&] {
    const Status watched = bench->client()->WatchJobs(
        {},
        [&](const v1::WatchJobsResponse& message) {
          if (!message.has_job()) return true;
          const v1::Job& job = message.job();
          if (job.name().rfind(prefix, 0) != 0) return true;
          if (!IsFinalState(job.state())) return true;
          if (!ended.insert(job.name()).second) return true;
          if (job.state() != v1::JOB_STATE_SUCCEEDED) {
            bad = job.name() + ": " + job.cause().message();
          }
          end = MonotonicNanos();
          return ended.size() < static_cast<size_t>(count);
        },
        &stop);
    if (!watched.ok()) fail(watched);
  });
  std::vector<std::thread> submitters;
  for (int c = 0; c < kConnections; ++c) {
    submitters.emplace_back([&, c] {
      for (int i = c; i < count && !stopped; i += kConnections) {
        const Status status =
            submit(clients[c].get(), prefix + std::to_string(i));
        if (!status.ok()) fail(status);
      }
    });
  }
  for (std::thread& thread : submitters) thread.join();
  watcher.join();
  LOCKSTEP_RETURN_IF_ERROR(failed);
  if (!bad.empty()) return Internal("{}", bad);
  return static_cast<double>(end - start) / 1e9;
}

}  // namespace lockstep
