// O4: CPU time and resident memory of daemons that have nothing to do, over
// 30 s after 5 s of rest: a worker daemon beside slurmd, the coordinator
// beside slurmctld. CPU is given as seconds per 30 s; ratios above 1 mean that
// ours takes less. Both sides idle at the same time.
#include <thread>

#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kRounds = 3;
constexpr auto kRest = std::chrono::seconds(5);
constexpr auto kWindow = std::chrono::seconds(30);
// The clock tick of /proc: what cannot be told from nothing.
constexpr double kTick = 0.01;

struct Side {
  const char* name;
  pid_t pid;
  ProcessUse before;
  std::vector<std::vector<double>> cpu;
  std::vector<std::vector<double>> memory;
};

Status Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 1;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ours, BenchCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto slurm, SlurmPeer::Start());
  Side sides[] = {
      {"worker", ours->cluster()->Pid("worker-0"), {}, {}, {}},
      {"slurmd", slurm->node(), {}, {}, {}},
      {"coordinator", ours->cluster()->Pid("coordinator"), {}, {}, {}},
      {"slurmctld", slurm->controller(), {}, {}, {}}};
  std::this_thread::sleep_for(kRest);
  for (int round = 0; round < kRounds; ++round) {
    for (Side& side : sides) {
      LOCKSTEP_ASSIGN_OR_RETURN(side.before, UseOf(side.pid));
    }
    std::this_thread::sleep_for(kWindow);
    for (Side& side : sides) {
      LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse after, UseOf(side.pid));
      side.cpu.push_back(
          {std::max(kTick, after.cpu_seconds - side.before.cpu_seconds)});
      side.memory.push_back({static_cast<double>(after.resident_bytes)});
    }
  }
  std::vector<BenchResult> results;
  for (int i : {0, 2}) {
    const Side& mine = sides[i];
    const Side& theirs = sides[i + 1];
    fmt::print("{}: {:.1f} MiB resident; {}: {:.1f} MiB\n", mine.name,
               mine.memory.back()[0] / (1 << 20), theirs.name,
               theirs.memory.back()[0] / (1 << 20));
    results.push_back({fmt::format("O4-cpu-{}", mine.name), 0, 0,
                       slurm->version() + " " + theirs.name, mine.cpu,
                       theirs.cpu, true});
    BenchResult memory{fmt::format("O4-rss-{}", mine.name),
                       0,
                       0,
                       slurm->version() + " " + theirs.name + ", bytes",
                       mine.memory,
                       theirs.memory,
                       true};
    memory.unit = BenchResult::Unit::kBytes;
    results.push_back(memory);
  }
  PrintResults(results);
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"slurm", slurm->version()}}, results);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
