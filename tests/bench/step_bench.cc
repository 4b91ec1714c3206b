// S1, S2, S3 and M1: whole training steps, by turns with peers.
//
//   step_bench [--id ID]... [--rounds N] [--steps K] [--json FILE] ...
//
// All sides of a benchmark are started once, two ranks each, pinned to two
// cores, and wait at their standard input (a wait that takes no time). In a
// round one side after the other takes its samples; which one begins changes
// from round to round. A sample is the time of K steps, from the first rank's
// start to the last rank's end, divided by K; before them one step is untimed,
// which finds memory and caches as others left them. Where a step is compared
// with the same with one 4-byte all-reduce instead, the same processes take
// both by turns (Turns in step_side.h): their difference is often smaller than
// what two processes differ in. The first round is dropped, one in which others
// used the machine is run again.
//
// In the end one step's reduced gradients are compared with float64's, on both
// ranks; peers began with our weights and batches and ran as many steps: their
// ranks must have ended with equal parameters, and with our losses.
//
//   S1  the residual network over shm, 4 samples a rank: a step with one 4-byte
//       all-reduce, over one with all gradients, step by step; the ratio is
//       the median of samples' ratios
//   S2  ResNet-50 on 64x64: torch DDP at its best; and what communication
//       costs: DDP's step less its step without, over ours
//   M1  the shallow model: torch DDP as it comes and at its best, TensorFlow's
//       MultiWorkerMirroredStrategy
//   S3  the residual network, 16 samples a rank: over TCP between two network
//       namespaces at 2 Gbit/s, exposed over busy; over shm, exposed over the
//       step
//
// A peer that is not installed is left out, and said so. DDP is Debian's
// python3-torch (the same LibTorch and BLAS as ours, so that the ratio is that
// of what lies around them); LOCKSTEP_BENCH_PYTHON_TORCH names another Python.
// TensorFlow's Python is LOCKSTEP_FRAMEWORKS/tensorflow/bin/python, and torch's
// there is told beside. "As it comes" is with one thread of OpenMP, as torchrun
// sets it, and for TensorFlow with nothing set; at its best a peer is pinned as
// ours and gets the same settings of malloc and OpenBLAS.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/bench/report.h"
#include "tests/bench/step_run.h"
#include "tests/bench/verdict.h"
#include "tests/bench/versions.h"

namespace lockstep {
namespace {

struct Benchmark {
  const char* id;
  Status (*run)(const StepSettings&, StepReport*);
};
constexpr Benchmark kBenchmarks[] = {
    {"S1", RunS1}, {"S2", RunS2}, {"S3", RunS3}, {"M1", RunM1}};

struct Flags {
  StepSettings run;
  Gate gate;
  std::string json;
  std::vector<std::string> ids;
};

constexpr char kUsage[] =
    "usage: step_bench [--id S1|S2|S3|M1]... [--rounds N] [--steps K]\n"
    "  [--only PART-OF-ID] [--json FILE] [--force | --lenient] [--gate FACTOR]"
    "\n  [--median]\n"
    "N rounds, at least 2, the first one dropped. The rest as engine_bench "
    "has it.\n";

std::optional<Flags> Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--force") {
      flags.run.on_busy = OnBusy::kTake;
      continue;
    }
    if (name == "--lenient") {
      flags.run.on_busy = OnBusy::kRepeatThenTake;
      continue;
    }
    if (name == "--median") {
      flags.gate.on_median = true;
      continue;
    }
    if (++i == argc) return std::nullopt;
    const char* const value = argv[i];
    if (name == "--id") {
      flags.ids.emplace_back(value);
    } else if (name == "--rounds") {
      flags.run.rounds = std::atoi(value);
      if (flags.run.rounds < 2) return std::nullopt;
    } else if (name == "--steps") {
      flags.run.steps = std::atoi(value);
    } else if (name == "--only") {
      flags.run.only = value;
    } else if (name == "--gate") {
      flags.gate.factor = std::atof(value);
    } else if (name == "--json") {
      flags.json = value;
    } else {
      return std::nullopt;
    }
  }
  return flags;
}

Status Run(const Flags& flags) {
  StepReport report;
  report.versions = EngineVersions();
  PrintFields(DescribeMachine());
  PrintFields(report.versions);
  for (const Benchmark& benchmark : kBenchmarks) {
    if (!flags.ids.empty() && std::find(flags.ids.begin(), flags.ids.end(),
                                        benchmark.id) == flags.ids.end()) {
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(
        Annotate(benchmark.run(flags.run, &report), benchmark.id));
  }
  PrintResults(report.results);
  if (report.results.empty()) return NotFound("there is no peer");
  if (!flags.json.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(
        AddToJson(flags.json, report.versions, report.results,
                  {{"weights", "1"}, {"batch", "rank + 1"}}));
  }
  const Verdict verdict = JudgeResults(report.results, flags.gate);
  for (const std::string& line : verdict.lines) fmt::print("{}\n", line);
  return verdict.status;
}

int Main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::optional<Flags> flags = Parse(argc, argv);
  if (!flags) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  const Status status = Run(*flags);
  if (!status.ok()) fmt::print(stderr, "{}\n", Message(status));
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
