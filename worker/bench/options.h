// What lockstep-bench was asked for. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_OPTIONS_H_
#define LOCKSTEP_WORKER_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/bench/step_options.h"
#include "worker/collective/communicator.h"

namespace lockstep {

struct BenchOptions {
  // What is measured, in this order. Empty: only steps.
  std::vector<CollectiveKind> collectives;
  bool steps = false;

  uint64_t min_bytes = 1 << 10;
  uint64_t max_bytes = 64 << 20;
  uint64_t factor = 4;
  uint64_t increment = 0;  // 0: by the factor
  int iterations = 20;     // or steps
  int warm_up = 5;
  bool check = true;
  std::vector<DataType> types = {DataType::kFloat32};
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  int root = 0;

  // Of ranks that this program starts itself.
  int ranks = 2;
  bool ranks_given = false;
  bool pin = false;
  std::string bind_address = "127.0.0.1";

  std::string backend = "auto";
  Duration timeout = std::chrono::seconds(60);
  std::string json;
  // One line on stdout, for those who read the output of a job.
  bool json_line = false;

  bool only_arguments = false;

  StepBenchOptions step;
};

// Sizes from min_bytes to max_bytes, ascending, at least one.
std::vector<uint64_t> SizesOf(const BenchOptions& options);

struct ParsedBench {
  BenchOptions options;
  // >= 0: help, a version or a manual page was written, or the arguments are
  // wrong, which stderr was told; end with it.
  int exit_code = -1;
};
// Exit code 2 for wrong usage.
ParsedBench ParseBench(int argc, char** argv);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_OPTIONS_H_
