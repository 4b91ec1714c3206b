// Converts a submitted job to a spec, translating AI Platform's terms by the
// site's tables.
#ifndef LOCKSTEP_SERVER_SERVICE_SUBMISSION_H_
#define LOCKSTEP_SERVER_SERVICE_SUBMISSION_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/training/site.h"
#include "lockstep/v1/job.pb.h"
#include "server/coordinator/job_commands.h"

namespace lockstep::server {

struct Submitted {
  Submission job;
  // Notes about fields without effect.
  std::vector<std::string> notes;
};

// InvalidArgument names the field in the caller's terms. Does not check that
// the packages exist, only that there are any, except with validate_only.
StatusOr<Submitted> ReadSubmission(const v1::SubmitJobRequest& request,
                                   const Site& site);

// Returns the TrainingInput for TF_CONFIG: JSON with names in snake_case,
// without unset fields.
std::string TfConfigJob(const v1::TrainingInput& input);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_SUBMISSION_H_
