// What lockstep-bench was asked for. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_OPTIONS_H_
#define LOCKSTEP_WORKER_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

// A synthetic model and how it is trained.
struct StepBenchOptions {
  // float32; as ResNet-50 has.
  uint64_t parameters = 25'600'000;
  // That they are cut in: what becomes ready at once in a backward pass.
  int tensors = 64;
  // Of computing a micro-batch, on rank 0 while the others are idle; all ranks
  // then do as much work.
  double compute_seconds = 0.05;
  // Per micro-batch, instead of compute_seconds; 0: not given.
  double flops = 0;
  uint64_t bucket_bytes = 0;  // 0: the backend's
  bool bf16_wire = false;
  // Micro-batches in a step.
  int accumulate = 1;
  // One rank that computes longer by this part; -1: none.
  int slow_rank = -1;
  double slow_share = 0;
};

// Texts of options that Settle parses.
struct StepBenchTexts {
  std::string parameters = "25.6M";
  std::string flops;
  std::string wire = "fp32";
  std::string slow;
  double compute_ms = 50;
};

struct BenchOptions {
  // Collectives to measure, in this order. Empty: only steps.
  std::vector<collective::CollectiveKind> collectives;
  bool steps = false;

  uint64_t min_bytes = 1 << 10;
  uint64_t max_bytes = 64 << 20;
  uint64_t factor = 4;
  uint64_t increment = 0;  // 0: by the factor
  int iterations = 20;     // or steps
  int warm_up = 5;
  bool check = true;
  std::vector<collective::DataType> types = {collective::DataType::kFloat32};
  std::vector<collective::ReduceOp> ops = {collective::ReduceOp::kSum};
  int root = 0;

  // Of ranks that this program starts itself.
  int ranks = 2;
  bool ranks_given = false;
  bool pin = false;
  std::string bind_address = "127.0.0.1";

  std::string backend = "auto";
  // The GPU of each rank that this program starts, for backend nccl. Empty:
  // that of the rank's number.
  std::vector<int> devices;
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
  // >= 0: exit with it, because help, a version or a manual page was printed,
  // or the arguments are wrong and stderr has the error.
  int exit_code = -1;
};
// Exit code 2 for wrong usage.
ParsedBench ParseBench(int argc, char** argv);

// Empty, or what is wrong.
std::string SettleSteps(const StepBenchTexts& texts, StepBenchOptions* options);

// Parses "0,1,1", a number for each of `ranks` ranks. Returns false unless it
// is that.
bool ParseDevices(const std::string& text, int ranks,
                  std::vector<int>* devices);

// Parses "25.6M": digits with an optional point, then K, M, G or T for 10^3 to
// 10^12. Returns false unless the value is finite and above 0.
bool ParseCount(const std::string& text, double* value);

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_OPTIONS_H_
