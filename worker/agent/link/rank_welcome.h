// Builds the Welcome that the daemon sends to a connecting rank.
#ifndef LOCKSTEP_WORKER_AGENT_LINK_RANK_WELCOME_H_
#define LOCKSTEP_WORKER_AGENT_LINK_RANK_WELCOME_H_

#include <cstdint>
#include <string>

#include "common/model/assignment.h"
#include "lockstep/v1/rank.pb.h"

namespace lockstep::worker::agent {

// `address` is the node's data address, `page` the path of the rank's page.
// REQUIRES: `assignment` has a spec, whose `task` holds `rank`, and a cluster
// spec.
v1::RankWelcome MakeWelcome(const Assignment& assignment, const LocalTask& task,
                            int32_t rank, const std::string& address,
                            const std::string& page);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_LINK_RANK_WELCOME_H_
