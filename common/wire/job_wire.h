// Job specs: what clients send is checked here and nowhere else.
#ifndef LOCKSTEP_COMMON_WIRE_JOB_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_JOB_WIRE_H_

#include <string_view>

#include "common/base/status.h"
#include "common/model/job.h"
#include "common/model/limits.h"
#include "common/wire/value_wire.h"
#include "lockstep/v1/job_spec.pb.h"

namespace lockstep {

// A name that lockstep or the contracts of the frameworks set, so that a job
// may not: RANK, TF_CONFIG, LD_*, LOCKSTEP_*, ...
bool IsReservedEnvironmentName(std::string_view name);

// At most 64, with clean keys and values; InvalidArgument: "labels: ...".
Status CheckLabels(
    const google::protobuf::Map<std::string, std::string>& labels);

// The job that `proto` asks for, with defaults filled in and roles in rank
// order. InvalidArgument names the first bad field from "spec" on:
// "spec.roles[1].count: must be 1 to 65536, not 0".
StatusOr<JobSpec> ParseJobSpec(const v1::JobSpec& proto);

v1::JobSpec ToProto(const JobSpec& value);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_JOB_WIRE_H_
