// The version of what coordinator and worker daemon say to each other
// (proto/lockstep/v1/worker.proto).
//
//   1  all daemons that leave Register.protocol out
//   2  Register.protocol
//
// A coordinator takes daemons of its own version and of the one before. So a
// cluster is upgraded coordinator first, and its ranks run on.
//
// Most changes need no new version: each side keeps quiet about fields that it
// does not know, and the coordinator, which is the newer one, knows from an
// absent field that the daemon is older. Raise kWorkerProtocol, and add a line
// above, when a daemon of the version before must be spoken to in another way.
// Then the code for the version before that one can go.
#ifndef LOCKSTEP_COMMON_WIRE_PROTOCOL_VERSION_H_
#define LOCKSTEP_COMMON_WIRE_PROTOCOL_VERSION_H_

#include <cstdint>

#include "common/base/status.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep {

inline constexpr int32_t kWorkerProtocol = 2;

// The reason of CheckProtocol's error.
inline constexpr char kProtocolVersion[] = "PROTOCOL_VERSION";

// FailedPrecondition, with that reason: a coordinator of this program does not
// take the daemon. The sentence says which of the two to upgrade.
Status CheckProtocol(const v1::Register& message);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_PROTOCOL_VERSION_H_
