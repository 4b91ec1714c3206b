// The training logger: prints lines to the chief's standard output, and reports
// values that the job shows ("accuracy"). On other ranks it is silent. The
// chief may be another rank after a recovery.
#ifndef LOCKSTEP_WORKER_TRAINER_TRAINING_LOGGER_H_
#define LOCKSTEP_WORKER_TRAINER_TRAINING_LOGGER_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "worker/runtime/session.h"
#include "worker/trainer/train_state.h"

namespace lockstep::worker::trainer {

struct TrainingLength {
  int64_t epochs = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;
  int64_t global_batch = 0;
};

// Not thread-safe: the training loop's.
class TrainingLogger {
 public:
  // Borrows the session. `log_every` steps are between two lines; 0: none.
  TrainingLogger(runtime::Session* session, const TrainingLength& plan,
                 int64_t log_every);

  // "cnn, 421642 parameters; 60000 samples ..."; then how it begins.
  void Begin(const std::string& what, const TrainProgress& progress);
  // Step `step` of `epoch` (from 0) is committed. `now` measures the rate.
  void Step(int64_t step, uint64_t epoch, const runtime::StepResult& result,
            double learning_rate, MonoTime now);
  void Evaluated(const TrainProgress& progress, uint64_t samples);
  // What Begin and Evaluated report, for a rank that becomes the chief: values
  // are shown from the chief's page. ReportEvaluation does nothing where there
  // was no evaluation.
  void ReportPlan();
  void ReportEvaluation(const TrainProgress& progress);
  void Print(const std::string& line);
  // The time between the last step and `now` was not training: the rate counts
  // from here.
  void Resume(MonoTime now);

 private:
  void Line(int64_t step, uint64_t epoch, double learning_rate, MonoTime now);

  runtime::Session* const session_;
  const TrainingLength plan_;
  const int64_t log_every_;
  // Since the last line.
  MonoTime since_;
  double loss_sum_ = 0;
  int64_t samples_ = 0;  // In steps that were applied.
  int64_t all_samples_ = 0;
  int skipped_ = 0;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_TRAINING_LOGGER_H_
