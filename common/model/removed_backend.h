// The backend gloo, which lockstep no longer has. lockstep-train and
// lockstep-bench took it by --backend; jobs that older versions stored may
// still ask for it. Pure.
#ifndef LOCKSTEP_COMMON_MODEL_REMOVED_BACKEND_H_
#define LOCKSTEP_COMMON_MODEL_REMOVED_BACKEND_H_

#include "common/model/job.h"

namespace lockstep {

// Whether a command of the job runs lockstep-train or lockstep-bench with
// --backend gloo. Other programs may have such a flag of their own.
bool AsksForGloo(const JobSpec& spec);

// Writes --backend auto in its place. The pinned reduction plan, which is one
// for gloo, is removed. Returns whether the job asked for gloo.
bool ReplaceGloo(JobSpec* spec);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_REMOVED_BACKEND_H_
