// What step_program is asked to do. Flags are --NAME VALUE.
#ifndef LOCKSTEP_TESTS_CLUSTER_STEP_OPTIONS_H_
#define LOCKSTEP_TESTS_CLUSTER_STEP_OPTIONS_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace lockstep {

struct StepOptions {
  int64_t steps = 100;
  int64_t batch = 8;  // Samples of a step, of all ranks together.
  // Each step takes at least so long on each rank.
  int64_t step_ms = 0;
  // And so much longer on this rank.
  int64_t slow_rank = -1;
  int64_t slow_ms = 0;
  // Ranks other than the chief say so long after it was written that their part
  // of a checkpoint is there: until then it is in flight.
  int64_t vote_ms = 0;
  // After this step (0: never) each rank waits until the file is there, for at
  // most two minutes.
  int64_t hold_step = 0;
  std::string hold_file;
  // Prints "step N" after each step.
  int64_t print_steps = 0;
  // Not 0: the ranks recover in place when others are lost.
  int64_t recover = 0;
  // Not 0: and go on while others are away.
  int64_t elastic = 0;
  // A process that replaces a lost one takes so much longer to start.
  int64_t late_ms = 0;
  // Memory that belongs to the state besides the weights.
  int64_t state_mib = 0;
  std::string backend = "auto";
  // A wrong config on this rank.
  int64_t odd_rank = -1;

  // At the beginning of `fail_step` (0: never), on `fail_rank`, in the first
  // `fail_attempts` attempts: "kill" (SIGKILL), "segv" (SIGSEGV), "nan" (one
  // gradient), "error" (leaves with an error), or an exit code.
  int64_t fail_step = 0;
  int64_t fail_rank = 0;
  int64_t fail_attempts = 1;
  std::string fail_how = "kill";
};

// InvalidArgument: unknown flag or not a number.
StatusOr<StepOptions> ParseStepOptions(int argc, char** argv);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CLUSTER_STEP_OPTIONS_H_
