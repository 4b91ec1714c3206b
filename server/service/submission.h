// A job that comes in, as the coordinator takes it: the spec itself, or what
// AI Platform's words mean at this site.
#ifndef LOCKSTEP_SERVER_SERVICE_SUBMISSION_H_
#define LOCKSTEP_SERVER_SERVICE_SUBMISSION_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/training/site.h"
#include "lockstep/v1/job.pb.h"
#include "server/coordinator/job_commands.h"

namespace lockstep {

struct Submitted {
  Submission job;
  // What was taken but has no effect here.
  std::vector<std::string> notes;
};

// InvalidArgument names the field, in the words that the caller used. That the
// packages are there is not looked at; that there are any is, unless the
// request only asks (validate_only).
StatusOr<Submitted> ReadSubmission(const v1::SubmitJobRequest& request,
                                   const Site& site);

// The TrainingInput as TF_CONFIG repeats it: JSON, its names in snake_case,
// what was not given left out.
std::string TfConfigJob(const v1::TrainingInput& input);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_SUBMISSION_H_
