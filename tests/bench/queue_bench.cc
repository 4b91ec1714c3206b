// Q1: 1,000 jobs of /bin/true from the first submission until the last one's
// final state is durable, beside a Slurm array of the same.
//
// Ours: four connections submit; a job asks for 1/32 of a core, so that 64 run
// at a time on two worker daemons, as on Slurm's 64 pretended CPUs. Final
// states are read from a watch, whose versions are the store's commits. Three
// rounds, by turns.
#include <atomic>
#include <set>
#include <thread>

#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kJobs = 1000;
constexpr int kConnections = 4;
constexpr int kRounds = 3;
constexpr double kCpusPerJob = 1.0 / 32;

StatusOr<double> Ours(BenchCluster* bench, int round) {
  const std::string prefix = "q" + std::to_string(round) + "-";
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kConnections; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        clients.emplace_back(),
        Client::Connect(bench->cluster()->client_options()));
    // Connected before the clock starts.
    LOCKSTEP_RETURN_IF_ERROR(clients.back()->ListNodes().status());
  }
  std::atomic<bool> failed{false};
  std::set<std::string> ended;
  int succeeded = 0;
  StopToken stop;
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
          succeeded += job.state() == v1::JOB_STATE_SUCCEEDED;
          end = MonotonicNanos();
          return ended.size() < kJobs;
        },
        &stop);
    if (!watched.ok()) failed = true;
  });
  std::vector<std::thread> submitters;
  for (int c = 0; c < kConnections; ++c) {
    submitters.emplace_back([&, c] {
      for (int i = c; i < kJobs && !failed; i += kConnections) {
        const auto spec = BenchCluster::Program(prefix + std::to_string(i), 1,
                                                kCpusPerJob, {"/bin/true"});
        if (!clients[c]->SubmitJob(spec).ok()) {
          failed = true;
          stop.Stop();
        }
      }
    });
  }
  for (std::thread& thread : submitters) thread.join();
  watcher.join();
  if (failed || succeeded != kJobs) {
    return Internal("{} of {} jobs succeeded", succeeded, kJobs);
  }
  return static_cast<double>(end - start) / 1e9;
}

StatusOr<double> Slurm(SlurmPeer* slurm) {
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(RunProgram(
      {"sbatch", "--quiet", "--wait", "--array=1-" + std::to_string(kJobs),
       "--output=/dev/null", "--wrap=exec /bin/true"},
      slurm->environment(), std::chrono::seconds(300)));
  return static_cast<double>(MonotonicNanos() - start) / 1e9;
}

Status Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ours, BenchCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto slurm, SlurmPeer::Start());
  BenchResult result;
  result.id = "Q1";
  result.ranks = 1;
  result.peer = slurm->version() + " sbatch --array=1-1000";
  result.verified = true;
  for (int round = 0; round < kRounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double a, Ours(ours.get(), round));
    LOCKSTEP_ASSIGN_OR_RETURN(const double b, Slurm(slurm.get()));
    fmt::print(
        "round {}: ours {:.2f} s ({:.0f} jobs/s), slurm {:.2f} s "
        "({:.0f} jobs/s)\n",
        round, a, kJobs / a, b, kJobs / b);
    result.ours_seconds.push_back({a});
    result.peer_seconds.push_back({b});
  }
  PrintResults({result});
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"slurm", slurm->version()}}, {result});
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
