// L2: from submission to the first collective done on both ranks: a native job
// of two ranks through Client::SubmitJob, beside `srun -n2` of a program
// that forms a raw Gloo mesh over a FileStore. By turns; the first round is
// dropped.
#include "common/base/file.h"
#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kRounds = 8;
constexpr int kSamples = 10;
constexpr int kRanks = 2;

Status Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ours, BenchCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto slurm, SlurmPeer::Start());
  const std::string peer = BenchProgram("gloo_probe");
  if (!RealFileSystem()->Exists(peer)) {
    return NotFound("there is no {}: install libgloo-dev and build again",
                    peer);
  }
  const BenchDir dir;
  const Board board(dir.path() + "/board", kRounds * kSamples * 2 * kRanks);
  int slot = 0;
  BenchResult result;
  result.id = "L2";
  result.bytes = sizeof(float);
  result.ranks = kRanks;
  result.peer = slurm->version() + " srun -n2, Gloo mesh over a FileStore";
  result.verified = true;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> mine, theirs;
    for (int i = 0; i < kSamples; ++i) {
      const std::string name = "l2-" + std::to_string(slot);
      auto spec = BenchCluster::Program(name, kRanks, 1,
                                        {BenchProgram("collective_probe"),
                                         board.path(), std::to_string(slot)});
      spec.set_kind(v1::JOB_KIND_NATIVE);
      int64_t start = MonotonicNanos();
      LOCKSTEP_RETURN_IF_ERROR(ours->client()->SubmitJob(spec).status());
      LOCKSTEP_ASSIGN_OR_RETURN(int64_t end, board.WaitAll(slot, kRanks));
      mine.push_back(static_cast<double>(end - start) / 1e9);
      LOCKSTEP_ASSIGN_OR_RETURN(
          const v1::Job job,
          ours->client()->WaitJob(name, std::chrono::seconds(30), nullptr));
      result.verified &= job.state() == v1::JOB_STATE_SUCCEEDED;
      slot += kRanks;

      const std::string store = dir.path() + "/" + std::to_string(slot);
      LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(store, 0755));
      start = MonotonicNanos();
      LOCKSTEP_RETURN_IF_ERROR(
          RunProgram({"srun", "--quiet", "-n2", peer, store, board.path(),
                      std::to_string(slot)},
                     slurm->environment()));
      LOCKSTEP_ASSIGN_OR_RETURN(end, board.WaitAll(slot, kRanks));
      theirs.push_back(static_cast<double>(end - start) / 1e9);
      slot += kRanks;
    }
    if (round == 0) continue;
    result.ours_seconds.push_back(mine);
    result.peer_seconds.push_back(theirs);
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
