// Validates the reports of a rank's link and cuts them to the coordinator's
// limits.
#ifndef LOCKSTEP_WORKER_AGENT_LINK_RANK_NEWS_H_
#define LOCKSTEP_WORKER_AGENT_LINK_RANK_NEWS_H_

#include "lockstep/v1/rank.pb.h"
#include "worker/agent/core/local_gang.h"

namespace lockstep::worker::agent {

RankNews NewsOf(const v1::RankReport& report);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_LINK_RANK_NEWS_H_
