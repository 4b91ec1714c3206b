// Trains one model on one rank of a job: the reference user of the runtime
// library. Read TrainLoop::Run first.
#ifndef LOCKSTEP_WORKER_TRAINER_TRAIN_LOOP_H_
#define LOCKSTEP_WORKER_TRAINER_TRAIN_LOOP_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/runtime/recovery.h"
#include "worker/runtime/session.h"
#include "worker/trainer/environment.h"
#include "worker/trainer/faults.h"
#include "worker/trainer/input.h"
#include "worker/trainer/local_model.h"
#include "worker/trainer/options.h"
#include "worker/trainer/replica.h"
#include "worker/trainer/restore.h"
#include "worker/trainer/saver.h"
#include "worker/trainer/train_state.h"
#include "worker/trainer/training_job.h"
#include "worker/trainer/training_logger.h"

namespace lockstep::worker::trainer {

// Reason of the error of a rank that was ordered to stop by a signal. The state
// is in a checkpoint, where there is a place for one.
inline constexpr char kReasonStopped[] = "STOPPED";

// Once from Join to Leave. Thread-compatible.
class TrainLoop {
 public:
  // Both are borrowed.
  TrainLoop(FileSystem* fs, runtime::Session* session,
            const TrainerOptions& options);
  ~TrainLoop();

  // OK: trained to the end, or the coordinator ordered a stop. Errors are for
  // Session::Leave.
  Status Run();
  // Whether every restart would find `error`, Run's, again: data that is
  // missing, options that do not go together. Only where the job never trained:
  // data that was there before may come back.
  bool IsPermanent(const Status& error) const;

 private:
  // Before the first step.
  Status MakeModel();
  ModelOptions ModelOf() const;
  Status RestoreState();
  Status MakeReducer();
  // Input, checkpoints and log, from the state on.
  Status Connect();

  // Steps to the end.
  Status Train();
  // After the loss of a peer, `lost`, or on the rank that replaces one.
  Status Recover(const Status& lost);
  // The values that the job shows from its chief's page.
  void ReportAsChief();
  // Also of what a recovery interrupted.
  Status EvaluateIfDue(int64_t epochs_done);
  Status StartInput();

  // Each step.
  bool Ended() const;
  Status Step();
  // Of all shards of this rank. The result has the numbers of the last one.
  StatusOr<runtime::StepInputs> ComputeGradients(int64_t step);

  // After the last step.
  Status End();
  Status EvaluateNow();
  // All ranks call it; on a full disk it waits for space.
  Status SaveModel();
  // The chief writes the model, if one is wanted; the others do nothing.
  Status WriteModel();
  void PrintParameterHash();

  StatusOr<SavedState> Save();

  FileSystem* const fs_;
  runtime::Session* const session_;
  const TrainerOptions options_;
  const Faults faults_;

  std::optional<PreparedTraining> job_;
  std::unique_ptr<LocalModel> model_;
  // The generation's beginning; on a replacement only its step is known.
  Restored restored_;
  std::unique_ptr<runtime::Reducer> reducer_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<SampleInput> input_;
  std::unique_ptr<TrainingLogger> logger_;
  std::optional<StopSignal> stop_signal_;

  TrainProgress progress_;
  // Whether what is done now depends on options and data alone.
  bool would_repeat_ = true;
  // The orders of the last step: stop, by the coordinator; drain, by a signal
  // to a rank.
  runtime::StepOrders orders_;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_TRAIN_LOOP_H_
