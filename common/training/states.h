// Maps a job's state to the seven states of an AI Platform job. Pure.
//
//   QUEUED -> PREPARING -> RUNNING -> SUCCEEDED | FAILED
//   QUEUED, PREPARING, RUNNING -> CANCELLING -> CANCELLED
//
// Clients of that interface rely on the order, so a restarted job does not go
// back: a job that once ran stays RUNNING while it is queued, placed, prepared
// or formed again, and while a success or failure is finishing.
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
  // An earlier generation was prepared, and was RUNNING.
  bool has_prepared = false;
  bool has_run = false;
  // The final state of a FINISHING job.
  std::optional<JobState> outcome;
};
TrainingState TrainingStateOf(const TrainingStateInput& input);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_STATES_H_
