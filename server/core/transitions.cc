#include "server/core/transitions.h"

namespace lockstep::server {

void Finish(Job* job, JobState outcome, Cause cause, int32_t exit_code,
            Time now) {
  job->outcome = outcome;
  job->exit_code = exit_code;
  job->failing.reset();
  DropNewNodes(job);
  EnterState(job, JobState::kFinishing, std::move(cause), now);
}

void Fail(Job* job, Cause cause, Time now) {
  cause.message = Shorten(std::move(cause.message));
  AddEvent(job, cause.reason, cause.message + "; stopping the generation", now);
  job->cause = {Reason::kStoppingRanks,
                cause.message + "; stopping the other ranks"};
  job->failing = std::move(cause);
  DropNewNodes(job);
}

void DropNewNodes(Job* job) {
  DropReplacements(job);
  job->spares.clear();
  job->refused_spares.clear();
}

void DropReplacements(Job* job) {
  std::erase_if(job->replacements, [](const Replacement& replacement) {
    return !replacement.released;
  });
  for (Replacement& replacement : job->replacements) {
    replacement.to.clear();
    replacement.gpus.clear();
  }
}

void ForgetEvents(Job* job) {
  std::erase_if(job->events, [&](const Event& event) {
    return event.generation == job->generation;
  });
}

}  // namespace lockstep::server
