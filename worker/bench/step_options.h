// What `lockstep-bench step` was asked for. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_STEP_OPTIONS_H_
#define LOCKSTEP_WORKER_BENCH_STEP_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/cli/command.h"

namespace lockstep {

// A synthetic model and how it is trained.
struct StepBenchOptions {
  // float32; as ResNet-50 has.
  uint64_t parameters = 25'600'000;
  // That they are cut in: what becomes ready at once in a backward pass.
  int tensors = 64;
  // Of computing a micro-batch, on rank 0 while the others are idle; all ranks
  // then do as much work.
  double compute_seconds = 0.05;
  // Of a micro-batch, instead of compute_seconds; 0: not given.
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

// `texts` and `options` outlive the command.
void AddStepOptions(const FlagGroup& group, StepBenchOptions* options,
                    StepBenchTexts* texts);
// Empty, or what is wrong.
std::string SettleSteps(const StepBenchTexts& texts, StepBenchOptions* options);

// "25.6M": digits, perhaps a point, then K, M, G or T for 10^3 to 10^12. False
// for anything else, and for what is no finite number above 0.
bool ParseCount(const std::string& text, double* value);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_STEP_OPTIONS_H_
