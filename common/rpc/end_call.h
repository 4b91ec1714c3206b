// The end of a call from outside its handler.
#ifndef LOCKSTEP_COMMON_RPC_END_CALL_H_
#define LOCKSTEP_COMMON_RPC_END_CALL_H_

#include "common/base/status.h"

namespace grpc {
class ServerContextBase;
}

namespace lockstep {

// Ends a call at once, also where what was sent before waits for its reader,
// who is told `status`, without its reason, when it reads on. For any thread,
// from the handler's start until the call's OnDone.
void EndCall(grpc::ServerContextBase* context, const Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_END_CALL_H_
