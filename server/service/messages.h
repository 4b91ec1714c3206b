// Snapshots of the coordinator as API messages.
#ifndef LOCKSTEP_SERVER_SERVICE_MESSAGES_H_
#define LOCKSTEP_SERVER_SERVICE_MESSAGES_H_

#include "lockstep/v1/types.pb.h"
#include "server/coordinator/coordinator.h"

namespace lockstep {

v1::Job ToMessage(const JobSnapshot& snapshot);
// Without tasks, attempts and events: for lists.
v1::Job ToListedMessage(const JobSnapshot& snapshot);
v1::JobProgress ToMessage(const JobName& job, const JobProgressInfo& progress);
v1::Node ToMessage(const NodeSnapshot& snapshot);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_MESSAGES_H_
