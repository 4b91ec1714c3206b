// What a filter compares with. Pure; for job_filter_parser.cc, which puts the
// column before an error.
#ifndef LOCKSTEP_SERVER_SERVICE_JOB_FILTER_VALUE_H_
#define LOCKSTEP_SERVER_SERVICE_JOB_FILTER_VALUE_H_

#include <string>

#include "common/base/status.h"
#include "server/service/job_filter.h"

namespace lockstep {

// InvalidArgument: the field, which was written `name`, does not take
// `term.op`, which was written `op`.
Status CheckFilterOperator(const std::string& name, const std::string& op,
                           const JobFilterTerm& term);

// Completes `term` from its `value`. REQUIRES: its field takes its operator.
// InvalidArgument: "\"x\" is no time such as ...".
Status ReadFilterValue(const std::string& name, JobFilterTerm* term);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_JOB_FILTER_VALUE_H_
