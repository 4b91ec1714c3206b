// Rows of `describe` for a job's spec, cost and outputs. Pure. Each returns ""
// if there is nothing to show.
#ifndef LOCKSTEP_CLIENT_CLI_DESCRIBE_SPEC_H_
#define LOCKSTEP_CLIENT_CLI_DESCRIBE_SPEC_H_

#include <string>

#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/job_spec.pb.h"

namespace lockstep::cli {

std::string SpecRows(const v1::JobSpec& spec);
// Cost so far, cost per hour, and the parts counted.
std::string CostRows(const v1::Job& job);
// The job's images, resolved if known.
std::string ImageRows(const v1::Job& job);
// The spare nodes of a job that has asked for some.
std::string SparesRow(const v1::Job& job);
// "3 of 4 tasks; may run with 2 to 4", of a job that may run with fewer tasks.
std::string SizeRow(const v1::Job& job);
// The reduction plan of the ranks, if known.
std::string ReductionRow(const v1::Job& job);
// KIND, SIZE, PATH of the files in its output directory.
std::string OutputsText(const v1::Job& job);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_DESCRIBE_SPEC_H_
