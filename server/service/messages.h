// Converts snapshots of the coordinator to API messages.
#ifndef LOCKSTEP_SERVER_SERVICE_MESSAGES_H_
#define LOCKSTEP_SERVER_SERVICE_MESSAGES_H_

#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/task.pb.h"
#include "lockstep/v1/training.pb.h"
#include "server/coordinator/job_commands.h"

namespace lockstep::server {

v1::Job ToMessage(const JobSnapshot& snapshot);
// The maximum size of a spec, and of the same in AI Platform's terms. Checked
// only at submission; stored ones may be larger.
inline constexpr size_t kMaxJobBytes = 256 << 10;

// InvalidArgument if it is larger.
Status CheckJobSize(const Submission& job);

// Returns the list form: without tasks, attempts, events, arguments and
// outputs.
v1::Job ToListedMessage(const JobSnapshot& snapshot);
v1::JobProgress ToMessage(const JobName& job, const JobProgressInfo& progress);
v1::Node ToMessage(const NodeSnapshot& snapshot);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_MESSAGES_H_
