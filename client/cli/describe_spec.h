// What a job is, costs and left, as `describe` shows it. Pure. Each is empty
// where there is nothing to say.
#ifndef LOCKSTEP_CLIENT_CLI_DESCRIBE_SPEC_H_
#define LOCKSTEP_CLIENT_CLI_DESCRIBE_SPEC_H_

#include <string>

#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/job_spec.pb.h"

namespace lockstep {

std::string SpecRows(const v1::JobSpec& spec);
// What it has cost so far, what an hour costs, and what of it is counted.
std::string CostRows(const v1::Job& job);
// What its images are, as far as that is settled.
std::string ImageRows(const v1::Job& job);
// By which reduction plan its ranks sum, once they have one.
std::string ReductionRow(const v1::Job& job);
// KIND, SIZE, PATH of what is in its output directory.
std::string OutputsText(const v1::Job& job);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_DESCRIBE_SPEC_H_
