// The tcp backend: ranks that reach each other by TCP, one progress thread
// each.
//
// Tune measures which all-reduce is fastest from which size on, how far ahead a
// ring is to be, and whether several connections with each peer help
// (plan.h): some tens of operations of up to 4 MiB. It opens its port again for
// further connections.
//
// Connections are authenticated, and neither encrypted nor protected against
// change: for a trusted network or a tunnel. A rank has connections with
// O(log n) others (plan.h), which are made while forming; its port is closed
// then. All types and operations; 16-bit floats travel as they are and are
// summed in float32, with one rounding (among more than 16 ranks they travel
// as float32).
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_TCP_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_TCP_COMMUNICATOR_H_

#include <memory>

#include "common/base/status.h"
#include "worker/collective/broken.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::tcp {

// Forms the communicator, with keys "tcp/..." in the rendezvous store. Ignores
// `options.backend`. Errors are those of forming; Unauthenticated: a peer has
// another key. `broken` may be empty; else one more thread watches for the end
// of peers while no operation is under way.
StatusOr<std::unique_ptr<Communicator>> FormTcp(
    const CommunicatorOptions& options, const BrokenFunction& broken = {});

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_TCP_COMMUNICATOR_H_
