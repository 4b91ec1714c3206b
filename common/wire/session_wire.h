// Sessions in ranks, as convert.h says.
#ifndef LOCKSTEP_COMMON_WIRE_SESSION_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_SESSION_WIRE_H_

#include "common/model/session.h"
#include "common/wire/convert.h"
#include "lockstep/v1/session.pb.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep {

LOCKSTEP_CONVERTS(WindowSize, "size")
LOCKSTEP_CONVERTS(SessionRequest, "open")
LOCKSTEP_CONVERTS_AS(SessionOrder, v1::OpenSession, "open_session")

// InvalidArgument if a message behind the first one is not what a client may
// send.
Status CheckInput(const v1::SessionInput& input);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_SESSION_WIRE_H_
