// Q1: 1,000 jobs of /bin/true from the first submission until the last one's
// final state is durable, beside a Slurm array of the same.
//
// Ours: four connections submit; a job asks for 1/32 of a core, so that 64 run
// at a time on two worker daemons, as on Slurm's 64 pretended CPUs. Three
// rounds, by turns.
#include "tests/bench/bench_cluster.h"
#include "tests/bench/many_jobs.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kJobs = 1000;
constexpr int kRounds = 3;
constexpr double kCpusPerJob = 1.0 / 32;

StatusOr<double> Ours(BenchCluster* bench, int round) {
  return RunManyJobs(bench, fmt::format("q{}-", round), kJobs,
                     [](Client* client, const std::string& name) {
                       return client
                           ->SubmitJob(BenchCluster::Program(
                               name, 1, kCpusPerJob, {"/bin/true"}))
                           .status();
                     });
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
