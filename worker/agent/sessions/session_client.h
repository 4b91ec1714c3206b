// Opens sessions' calls by gRPC.
#ifndef LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_CLIENT_H_
#define LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_CLIENT_H_

#include <memory>

#include "worker/agent/sessions/session_call.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace lockstep::worker::agent {

// `channel` is that of the daemon's stream.
std::unique_ptr<SessionClient> MakeGrpcSessionClient(
    std::shared_ptr<grpc::Channel> channel);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_CLIENT_H_
