// The options of lockstep-train: its flags, checked. PURE, except for
// ParseFlags, which prints help.
#ifndef LOCKSTEP_WORKER_TRAINER_OPTIONS_H_
#define LOCKSTEP_WORKER_TRAINER_OPTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/trainer/optimizer.h"

namespace lockstep::worker::trainer {

// Injected faults, for tests; refused without --allow-faults. Each happens only
// on rank `on_rank` and in the first `attempts` attempts of a job, so a
// restarted job, or the replacement of a lost rank, passes it.
struct FaultOptions {
  bool allowed = false;
  int64_t fail_at_step = 0;  // 0: never. Ends with an error of its own.
  int64_t kill_at_step = 0;  // SIGKILL to itself.
  int64_t nan_at_step = 0;   // One gradient is not a number.
  int on_rank = 0;
  int attempts = 1;
  // Each step takes this much longer, on all ranks.
  Duration step_delay{};
  // Fault points, as in common/base/fault_point.h.
  std::string points;
};

struct DataOptions {
  // Files, directories or globs of TFRecord shards. Without `eval` no accuracy
  // is measured.
  std::vector<std::string> train;
  std::vector<std::string> eval;
  int64_t input_threads = 1;  // They read and decode samples.
};

struct RateOptions {
  double learning_rate = 0;  // 0: 0.05 for sgd, 0.001 for adam.
  // "linear": the rate is for `reference_batch` samples a step, and grows with
  // the global batch. "none": as given.
  std::string scale_lr = "none";
  int64_t reference_batch = 64;
  std::string lr_schedule = "cosine";  // Or "constant".
  int64_t warmup_steps = 0;
};

struct EvaluationOptions {
  int64_t every_epochs = 1;  // 0: only at the end.
  int64_t patience = 0;      // Evaluations; 0: never stop early.
};

// The directories of results. Empty: the job's output directory, and
// "checkpoints" in it. A run that lockstep did not start has none unless given,
// and then writes no files.
struct OutputOptions {
  std::string directory;
  std::string checkpoint_dir;
  // For a run that lockstep did not start; a job's spec has its own.
  int64_t checkpoint_interval = 0;
};

// How gradients are reduced.
struct ReductionOptions {
  std::string backend = "auto";  // Or a backend's name.
  std::string wire = "fp32";     // The type on the wire: "fp32" or "bf16".
  double clip_norm = 0;          // Largest norm of the gradient; 0: any.
};

struct RunOptions {
  int64_t log_every = 100;
  // Threads of arithmetic. 0: OMP_NUM_THREADS, else the rank's cpus, else 1.
  int threads = 0;
  bool param_hash = false;
  // A lost rank is replaced in place (worker/runtime/recovery.h).
  bool recover = false;
  // As `recover`, and the others train on while it is away, to the same bits.
  bool elastic = false;
};

struct TrainerOptions {
  DataOptions data;
  std::string model = "cnn";  // "cnn", "shallow" or "resnet".
  int64_t classes = 0;        // 0: the largest label of the training data + 1.

  int64_t epochs = 6;
  int64_t max_steps = 0;    // 0: as many as the epochs have.
  int64_t batch_size = 64;  // Samples of one rank in one backward.
  int64_t accumulate = 1;   // Backwards in one step.
  uint64_t seed = 1;
  OptimizerOptions optimizer = {
      .kind = "sgd", .momentum = 0.9, .weight_decay = 0.0005};
  RateOptions rate;
  EvaluationOptions evaluation;
  ReductionOptions reduction;
  OutputOptions output;
  RunOptions run;
  FaultOptions faults;
};

// The values that must be equal on all ranks, by the names of their flags.
std::map<std::string, std::string> ConfigOf(const TrainerOptions& options);

// InvalidArgument names the flag, what is wrong and what would work.
Status CheckOptions(const TrainerOptions& options);

// Returns the options, checked and with defaults filled in. No value: --help or
// --version was printed. InvalidArgument: wrong usage.
StatusOr<std::optional<TrainerOptions>> ParseFlags(int argc, char** argv);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_OPTIONS_H_
