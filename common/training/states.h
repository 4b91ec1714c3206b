// The seven states of an AI Platform job, made of a job's own state. Pure.
//
//   QUEUED -> PREPARING -> RUNNING -> SUCCEEDED | FAILED
//   QUEUED, PREPARING, RUNNING -> CANCELLING -> CANCELLED
//
// Users of that interface rely on the order, so a job that is started again
// does not go back: what is queued, placed, prepared or formed after the job
// once ran is RUNNING, as is the ending of a success or failure.
#ifndef LOCKSTEP_COMMON_TRAINING_STATES_H_
#define LOCKSTEP_COMMON_TRAINING_STATES_H_

#include <optional>
#include <string_view>

#include "common/model/job.h"

namespace lockstep {

// The numbers are those of Job.state.
enum class TrainingState {
  kQueued = 1,
  kPreparing = 2,
  kRunning = 3,
  kSucceeded = 4,
  kFailed = 5,
  kCancelling = 6,
  kCancelled = 7,
};
inline constexpr TrainingState kAllTrainingStates[] = {
    TrainingState::kQueued,   TrainingState::kPreparing,
    TrainingState::kRunning,  TrainingState::kSucceeded,
    TrainingState::kFailed,   TrainingState::kCancelling,
    TrainingState::kCancelled};

// "QUEUED".
std::string_view Name(TrainingState state);

struct TrainingStateInput {
  JobState state = JobState::kQueued;
  // A generation of it was prepared before; it was RUNNING before.
  bool has_prepared = false;
  bool has_run = false;
  // Where a FINISHING job ends.
  std::optional<JobState> outcome;
};
TrainingState TrainingStateOf(const TrainingStateInput& input);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_STATES_H_
