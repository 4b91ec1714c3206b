// L1: from submission to the first instruction of both ranks of a gang,
// beside Slurm's sbatch and srun -n2 on the same machine.
//
// Ours: a coordinator and two worker daemons, mTLS on, the store on disk with
// fsync. One job at a time. `L1-api` stamps before Client::SubmitJob,
// `L1-command` before the start of `lockstep submit --detach`, as for sbatch
// and srun. Both tasks run a static program whose first act is to read the
// clock; the sample ends with the later one. sbatch's script is one process on
// one node, so it has less to do. The first round is dropped.
#include <thread>

#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kRounds = 8;
constexpr int kSamples = 10;
constexpr int kRanks = 2;

class Bench {
 public:
  Status Run(const std::string& json);

 private:
  StatusOr<double> Api();
  StatusOr<double> Command();
  StatusOr<double> Srun();
  StatusOr<double> Sbatch();
  StatusOr<double> Took(int64_t start, int slot, int count);
  Status WaitSlurmEmpty();

  BenchDir dir_;
  Board board_{dir_.path() + "/board", kRounds* kSamples * 4 * kRanks};
  std::unique_ptr<BenchCluster> ours_;
  std::unique_ptr<SlurmPeer> slurm_;
  int next_slot_ = 0;
  int next_job_ = 0;

  std::vector<std::string> Probe(int slot) const {
    return {BenchProgram("launch_probe"), board_.path(), std::to_string(slot)};
  }
  int TakeSlots() { return std::exchange(next_slot_, next_slot_ + kRanks); }
};

StatusOr<double> Bench::Took(int64_t start, int slot, int count) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t last, board_.WaitAll(slot, count));
  return static_cast<double>(last - start) / 1e9;
}

StatusOr<double> Bench::Api() {
  const int slot = TakeSlots();
  const std::string name = "api" + std::to_string(++next_job_);
  const v1::JobSpec spec = BenchCluster::Program(name, kRanks, 1, Probe(slot));
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(ours_->client()->SubmitJob(spec).status());
  LOCKSTEP_ASSIGN_OR_RETURN(const double took, Took(start, slot, kRanks));
  LOCKSTEP_RETURN_IF_ERROR(
      ours_->client()
          ->WaitJob(name, std::chrono::seconds(30), nullptr)
          .status());
  return took;
}

StatusOr<double> Bench::Command() {
  const int slot = TakeSlots();
  const std::string name = "command" + std::to_string(++next_job_);
  std::vector<std::string> argv = {BinDir() + "/lockstep",
                                   "submit",
                                   "--detach",
                                   "--name",
                                   name,
                                   "--tasks",
                                   "2",
                                   "--cpus",
                                   "1",
                                   "--"};
  for (const std::string& word : Probe(slot)) argv.push_back(word);
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(RunProgram(argv, ours_->environment()));
  LOCKSTEP_ASSIGN_OR_RETURN(const double took, Took(start, slot, kRanks));
  LOCKSTEP_RETURN_IF_ERROR(
      ours_->client()
          ->WaitJob(name, std::chrono::seconds(30), nullptr)
          .status());
  return took;
}

StatusOr<double> Bench::Srun() {
  const int slot = TakeSlots();
  std::vector<std::string> argv = {"srun", "--quiet", "-n2"};
  for (const std::string& word : Probe(slot)) argv.push_back(word);
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(RunProgram(argv, slurm_->environment()));
  LOCKSTEP_ASSIGN_OR_RETURN(const double took, Took(start, slot, kRanks));
  LOCKSTEP_RETURN_IF_ERROR(WaitSlurmEmpty());
  return took;
}

StatusOr<double> Bench::Sbatch() {
  const int slot = TakeSlots();
  std::string script = "exec";
  for (const std::string& word : Probe(slot)) script += " " + word;
  const std::vector<std::string> argv = {
      "sbatch", "--quiet", "-n2", "--output=/dev/null", "--wrap=" + script};
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(RunProgram(argv, slurm_->environment()));
  LOCKSTEP_ASSIGN_OR_RETURN(const double took, Took(start, slot, 1));
  LOCKSTEP_RETURN_IF_ERROR(WaitSlurmEmpty());
  return took;
}

Status Bench::WaitSlurmEmpty() {
  for (int i = 0; i < 3000; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::string queue,
        OutputOf({"squeue", "--noheader"}, slurm_->environment()));
    if (queue.empty()) return OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return DeadlineExceeded("Slurm's queue does not empty");
}

Status Bench::Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(ours_, BenchCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(slurm_, SlurmPeer::Start());
  std::vector<std::vector<double>> api, command, srun, sbatch;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> a, c, r, b;
    for (int i = 0; i < kSamples; ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(a.emplace_back(), Api());
      LOCKSTEP_ASSIGN_OR_RETURN(r.emplace_back(), Srun());
      LOCKSTEP_ASSIGN_OR_RETURN(c.emplace_back(), Command());
      LOCKSTEP_ASSIGN_OR_RETURN(b.emplace_back(), Sbatch());
    }
    if (round == 0) continue;
    api.push_back(a);
    command.push_back(c);
    srun.push_back(r);
    sbatch.push_back(b);
  }
  const auto result = [&](const char* id, const auto& ours,
                          const std::string& peer, const auto& theirs) {
    return BenchResult{id,   0,      kRanks, slurm_->version() + " " + peer,
                       ours, theirs, true};
  };
  const std::vector<BenchResult> results = {
      result("L1-api", api, "srun -n2", srun),
      result("L1-command", command, "srun -n2", srun),
      result("L1-api-b", api, "sbatch", sbatch),
      result("L1-command-b", command, "sbatch", sbatch)};
  PrintResults(results);
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"slurm", slurm_->version()}}, results);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  lockstep::Bench bench;
  return lockstep::BenchMain(bench.Run(flags.json));
}
