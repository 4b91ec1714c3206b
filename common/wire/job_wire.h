// Job specs: what clients send is checked here and nowhere else.
#ifndef LOCKSTEP_COMMON_WIRE_JOB_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_JOB_WIRE_H_

#include "common/base/status.h"
#include "common/model/job.h"
#include "common/model/limits.h"
#include "common/wire/value_wire.h"
#include "lockstep/v1/job_spec.pb.h"

namespace lockstep {

// At most 64, with clean keys and values; InvalidArgument: "labels: ...".
Status CheckLabels(
    const google::protobuf::Map<std::string, std::string>& labels);

LOCKSTEP_CONVERTS(RoleSpec, "role")
// With defaults filled in and roles in rank order. InvalidArgument names the
// first bad field: "spec.roles[1].count: must be 1 to 65536, not 0".
LOCKSTEP_CONVERTS(JobSpec, "spec")

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_JOB_WIRE_H_
