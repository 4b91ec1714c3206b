// Trains one model on one rank of a job: the reference user of the runtime
// library. Read TrainLoop::Run first.
#ifndef LOCKSTEP_WORKER_TRAINER_TRAIN_LOOP_H_
#define LOCKSTEP_WORKER_TRAINER_TRAIN_LOOP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/data/prefetcher.h"
#include "worker/runtime/session.h"
#include "worker/trainer/environment.h"
#include "worker/trainer/faults.h"
#include "worker/trainer/job_data.h"
#include "worker/trainer/optimizer.h"
#include "worker/trainer/options.h"
#include "worker/trainer/replica.h"
#include "worker/trainer/saver.h"
#include "worker/trainer/schedule.h"
#include "worker/trainer/train_state.h"
#include "worker/trainer/training_logger.h"

namespace lockstep {

// Reason of the error with which a rank ends that was told to stop by a
// signal. The state is in a checkpoint, where there is a place for one.
inline constexpr char kReasonStopped[] = "STOPPED";

// Once from Join to Leave. Thread-compatible.
class TrainLoop {
 public:
  // Both are borrowed.
  TrainLoop(FileSystem* fs, Session* session, const TrainerOptions& options);
  ~TrainLoop();

  // OK: trained to the end, or the coordinator ordered a stop. Errors are for
  // Session::Leave.
  Status Run();
  // Whether `error`, Run's, is of what every restart would find again: data
  // that is not there, options that do not go together. Only where the job
  // never trained: what was there before may come back.
  bool IsPermanent(const Status& error) const;

 private:
  // Before the first step.
  Status OpenData();
  Status Form();
  Status MakeReplica();
  Status RestoreState();
  Status Connect();

  // Each step.
  bool Ended() const;
  Status Step();
  StatusOr<double> ComputeGradients(int64_t step);
  Status TakeGradient(int64_t step, size_t i, std::span<const float> gradient,
                      bool last);
  void Apply(double learning_rate, double gradient_scale);
  Status EvaluateIfDue();

  // After the last step.
  Status End();
  Status EvaluateNow();
  // By all ranks alike; on a full disk it waits for space.
  Status SaveModel();
  // By rank 0, where a model is wanted; the others do nothing.
  Status WriteModel();
  void PrintParameterHash();

  StatusOr<SavedState> Save();
  uint64_t StateHashNow();

  FileSystem* const fs_;
  Session* const session_;
  const TrainerOptions options_;
  const Faults faults_;

  std::optional<JobData> data_;
  Plan plan_;
  int64_t classes_ = 0;
  std::string output_;  // Empty: nothing is written.
  std::string checkpoint_root_;
  // Whether what is done now depends on options and data alone.
  bool would_repeat_ = true;
  std::map<std::string, std::string> facts_;  // Config and data, by name.

  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<Optimizer> optimizer_;
  Schedule schedule_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Prefetcher> input_;
  size_t input_depth_ = 0;
  std::unique_ptr<TrainingLogger> logger_;
  std::optional<StopSignal> stop_signal_;

  TrainProgress progress_;
  std::optional<checkpoint::CheckpointKey> restored_from_;
  std::vector<uint32_t> gradient_order_;  // Restored.
  Batch batch_;
  std::vector<std::span<const float>> gradients_;  // For the optimizer.
  std::vector<std::span<float>> places_;           // For the backward.
  bool ordered_to_stop_ = false;                   // By the coordinator.
  bool told_to_stop_ = false;                      // Some rank, by a signal.
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_TRAIN_LOOP_H_
