// F3: SIGKILL one of two ranks; from there to the first instruction of both
// ranks of the next start, in place, beside torchrun's.
//
// Ours: a task on each of two worker daemons, mTLS on, a fresh job for each
// sample. torchrun: one agent with two ranks on this host, its own defaults
// and restarts to spare, a fresh agent for each round. Both run a static
// program that says when it began and waits (restart_probe.c), so no
// framework is imported. torchrun looks at its ranks every 0.1 s: kills come
// at random moments. By turns; the first round is dropped.
//
// LOCKSTEP_FRAMEWORKS names the folder that tests/frameworks/setup made;
// without it nothing is measured.
#include <signal.h>
#include <stdlib.h>

#include <optional>
#include <random>
#include <thread>

#include "client/local/ports.h"
#include "common/base/file.h"
#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kRounds = 6;
constexpr int kSamples = 8;
constexpr int kRanks = 2;
constexpr int kSlots = 2 * kRanks;  // Of one start: times, then pids.

class Torchrun {
 public:
  Torchrun(std::string python, const Board* board, int slot)
      : python_(std::move(python)), board_(board), slot_(slot) {}
  ~Torchrun() {
    if (process_) (void)StopProcess(*process_, std::chrono::seconds(10));
  }
  Status Start(const std::string& log) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto ports, ChoosePorts(1));
    SpawnOptions spawn;
    spawn.program = python_;
    spawn.argv = {python_,
                  "-m",
                  "torch.distributed.run",
                  "--nnodes",
                  "1",
                  "--nproc-per-node",
                  std::to_string(kRanks),
                  "--max-restarts",
                  std::to_string(kSamples + 1),
                  "--master-port",
                  std::to_string(ports[0]),
                  "--no-python",
                  BenchProgram("restart_probe"),
                  board_->path(),
                  std::to_string(slot_)};
    spawn.env = CurrentEnvironment();
    spawn.env.push_back("OMP_NUM_THREADS=1");
    spawn.stdout_path = log;
    spawn.stderr_path = log;
    LOCKSTEP_ASSIGN_OR_RETURN(process_, Spawn(spawn));
    return OkStatus();
  }

 private:
  const std::string python_;
  const Board* const board_;
  const int slot_;
  std::optional<Process> process_;
};

class Bench {
 public:
  explicit Bench(std::string python) : python_(std::move(python)) {}
  Status Run(const std::string& json);

 private:
  // Waits until both ranks of the start at `slot` run, kills the last one at a
  // random moment; seconds until both run again, at the next slots.
  StatusOr<double> KillOne(int slot);
  StatusOr<double> Ours();
  Status WaitRunning(const std::string& name);

  const std::string python_;
  BenchDir dir_;
  Board board_{dir_.path() + "/board", kRounds*(3 * kSamples + 2) * kSlots};
  std::unique_ptr<BenchCluster> ours_;
  std::mt19937_64 random_{1};
  int next_slot_ = 0;
  int next_job_ = 0;
};

StatusOr<double> Bench::KillOne(int slot) {
  LOCKSTEP_RETURN_IF_ERROR(board_.WaitAll(slot, kSlots).status());
  std::this_thread::sleep_for(std::chrono::microseconds(
      std::uniform_int_distribution<>(200'000, 300'000)(random_)));
  const int64_t start = MonotonicNanos();
  if (kill(static_cast<pid_t>(board_.Get(slot + kSlots - 1)), SIGKILL) != 0) {
    return Internal("the rank has ended before it was killed");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t last,
                            board_.WaitAll(slot + kSlots, kRanks));
  return static_cast<double>(last - start) / 1e9;
}

Status Bench::WaitRunning(const std::string& name) {
  for (int i = 0; i < 3000; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, ours_->client()->GetJob(name));
    if (job.state() == v1::JOB_STATE_RUNNING) return OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return DeadlineExceeded("{} does not run after 30 s", name);
}

StatusOr<double> Bench::Ours() {
  const int slot = std::exchange(next_slot_, next_slot_ + 2 * kSlots);
  const std::string name = "restart" + std::to_string(++next_job_);
  v1::JobSpec spec = BenchCluster::Program(
      name, kRanks, 1,
      {BenchProgram("restart_probe"), board_.path(), std::to_string(slot)});
  spec.set_restart_budget(3);
  LOCKSTEP_RETURN_IF_ERROR(ours_->client()->SubmitJob(spec).status());
  LOCKSTEP_RETURN_IF_ERROR(WaitRunning(name));
  LOCKSTEP_ASSIGN_OR_RETURN(const double took, KillOne(slot));
  LOCKSTEP_RETURN_IF_ERROR(WaitRunning(name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, ours_->client()->GetJob(name));
  if (job.restarts() != 1) {
    return Internal("{} has restarted {} times", name, job.restarts());
  }
  LOCKSTEP_RETURN_IF_ERROR(ours_->client()->CancelJob(name).status());
  LOCKSTEP_RETURN_IF_ERROR(
      ours_->client()
          ->WaitJob(name, std::chrono::seconds(60), nullptr)
          .status());
  return took;
}

Status Bench::Run(const std::string& json) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::string version,
      OutputOf({python_, "-c",
                "import importlib.metadata as m; print(m.version('torch'))"},
               CurrentEnvironment()));
  while (!version.empty() && version.back() == '\n') version.pop_back();
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(ours_, BenchCluster::Start(options));
  BenchResult result;
  result.id = "F3";
  result.ranks = kRanks;
  result.peer = "torchrun of torch " + version;
  result.verified = true;
  for (int round = 0; round < kRounds; ++round) {
    int slot = std::exchange(next_slot_, next_slot_ + (kSamples + 1) * kSlots);
    Torchrun torchrun(python_, &board_, slot);
    LOCKSTEP_RETURN_IF_ERROR(torchrun.Start(dir_.path() + "/torchrun"));
    std::vector<double> ours, theirs;
    for (int i = 0; i < kSamples; ++i, slot += kSlots) {
      LOCKSTEP_ASSIGN_OR_RETURN(ours.emplace_back(), Ours());
      LOCKSTEP_ASSIGN_OR_RETURN(theirs.emplace_back(), KillOne(slot));
    }
    if (round == 0) continue;
    result.ours_seconds.push_back(ours);
    result.peer_seconds.push_back(theirs);
  }
  PrintResults({result});
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"torch", version}}, {result});
}

// Of torch; why not.
StatusOr<std::string> FindTorch() {
  const char* const frameworks = getenv("LOCKSTEP_FRAMEWORKS");
  if (frameworks == nullptr || *frameworks == '\0') {
    return NotFound(
        "no torchrun: run tests/frameworks/setup DIR and set "
        "LOCKSTEP_FRAMEWORKS=DIR");
  }
  const std::string python = JoinPath(frameworks, "torch/bin/python");
  if (!RealFileSystem()->Exists(python)) {
    return NotFound("no torchrun: there is no {}", python);
  }
  return python;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  const auto python = lockstep::FindTorch();
  if (!python.ok()) {
    fmt::print("F3: skipped: {}\n", lockstep::Message(python.status()));
    return 0;
  }
  lockstep::Bench bench(*python);
  return lockstep::BenchMain(bench.Run(flags.json));
}
