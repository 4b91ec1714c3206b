// The command of a session in a rank, as its shim starts it.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_SESSION_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_SESSION_H_

#include "common/base/status.h"
#include "common/model/session.h"
#include "worker/agent/store/task_store.h"
#include "worker/container/container_engine.h"
#include "worker/task/shim_messages.h"

namespace lockstep::worker::agent {

// For a command or a port. `engine` is null if the node has none. NotFound: the
// rank has not started; FailedPrecondition: it is in a container of an engine
// that the node no longer has.
StatusOr<task::ShimRequest> ShimRequestOf(
    const SessionRequest& request, const RankPaths& paths,
    const container::ContainerEngine* engine);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_SESSION_H_
