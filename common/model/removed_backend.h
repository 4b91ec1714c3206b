// The removed backend gloo. lockstep-train and lockstep-bench accepted it by
// --backend, and jobs stored by older versions may still ask for it. Pure.
#ifndef LOCKSTEP_COMMON_MODEL_REMOVED_BACKEND_H_
#define LOCKSTEP_COMMON_MODEL_REMOVED_BACKEND_H_

#include "common/model/job.h"

namespace lockstep {

// True if a command of the job runs lockstep-train or lockstep-bench with
// --backend gloo. Other programs may have such a flag of their own.
bool AsksForGloo(const JobSpec& spec);

// Replaces it by --backend auto and removes the pinned reduction plan, which is
// for gloo. Returns true if the job asked for gloo.
bool ReplaceGloo(JobSpec* spec);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_REMOVED_BACKEND_H_
