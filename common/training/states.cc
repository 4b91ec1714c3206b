#include "common/training/states.h"

namespace lockstep {
namespace {

TrainingState Ending(const TrainingStateInput& input) {
  if (input.outcome == JobState::kCancelled) return TrainingState::kCancelling;
  // A job that failed during preparation was never RUNNING.
  return input.has_run ? TrainingState::kRunning : TrainingState::kPreparing;
}

}  // namespace

std::string_view Name(TrainingState state) {
  switch (state) {
    case TrainingState::kQueued:
      return "QUEUED";
    case TrainingState::kPreparing:
      return "PREPARING";
    case TrainingState::kRunning:
      return "RUNNING";
    case TrainingState::kSucceeded:
      return "SUCCEEDED";
    case TrainingState::kFailed:
      return "FAILED";
    case TrainingState::kCancelling:
      return "CANCELLING";
    case TrainingState::kCancelled:
      return "CANCELLED";
  }
  return "STATE_UNSPECIFIED";
}

TrainingState TrainingStateOf(const TrainingStateInput& input) {
  switch (input.state) {
    case JobState::kQueued:
    case JobState::kPlacing:
      if (input.has_run) return TrainingState::kRunning;
      return input.has_prepared ? TrainingState::kPreparing
                                : TrainingState::kQueued;
    case JobState::kPreparing:
    case JobState::kForming:
      return input.has_run ? TrainingState::kRunning
                           : TrainingState::kPreparing;
    case JobState::kRunning:
      return TrainingState::kRunning;
    case JobState::kFinishing:
      return Ending(input);
    case JobState::kSucceeded:
      return TrainingState::kSucceeded;
    case JobState::kFailed:
      return TrainingState::kFailed;
    case JobState::kCancelled:
      return TrainingState::kCancelled;
  }
  return TrainingState::kQueued;
}

}  // namespace lockstep
