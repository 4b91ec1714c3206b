// Which errors are not this rank's own. PURE.
#ifndef LOCKSTEP_WORKER_RUNTIME_PEER_LOST_H_
#define LOCKSTEP_WORKER_RUNTIME_PEER_LOST_H_

#include "common/base/status.h"

namespace lockstep::worker::runtime {

// Reason of every error that a peer or the end of the generation caused.
inline constexpr char kReasonPeerLost[] = "PEER_LOST";

// For errors as they come out of a communicator or the link: aborted,
// unavailable and late ones without a reason get kReasonPeerLost.
Status MarkPeerLost(const Status& status);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_PEER_LOST_H_
