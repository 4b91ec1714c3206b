// Ends a call from outside its handler.
#ifndef LOCKSTEP_COMMON_RPC_END_CALL_H_
#define LOCKSTEP_COMMON_RPC_END_CALL_H_

#include "common/base/status.h"

namespace grpc {
class ServerContextBase;
}

namespace lockstep {

// Ends a call at once, even if sent messages still wait for the reader, which
// then gets `status` without its reason. Any thread may call it from the
// handler's start until the call's OnDone.
void EndCall(grpc::ServerContextBase* context, const Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_END_CALL_H_
