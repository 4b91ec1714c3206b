// The backend for ranks that share a host: they reduce in memory that all of
// them map.
//
// Allocate gives memory of this rank's segment (segment.h), present before it
// returns; reductions run in place on it, by whichever ranks are free: a rank
// that is busy elsewhere is not waited for once it has started the operation.
// Small operations are copied and need one synchronisation only. How it works,
// and why it is right: layout.h. How ranks find and trust each other:
// rendezvous.h.
//
// Progress is kInline. Start shows the others that this rank has arrived;
// Start, Poll and Wait reduce the operations at which all have arrived, in
// order. Wait looks for some 100 us, where all ranks can run at once, then
// sleeps.
//
// The same bits on every rank and in every run: operands in rank order,
// 16-bit floats accumulated in float32 and rounded once (reduce.h).
//
// Register and AnyMemory take private memory. It is streamed through a few
// slots of the segments, which stay in the cache: measured, that is more than
// twice as fast as reading peers' memory from outside (process_vm_readv), and
// needs no right to do so. All ranks must take part.
//
// Errors beyond communicator.h: FailedPrecondition where the ranks started
// different operations (kind, type, count, op or root) as the same number:
// every rank gets a sentence that names two ranks and what they started, and
// nothing was reduced. After an error a peer that still runs may write into a
// slice of Allocate's memory until this communicator is gone: its content is
// undefined then.
//
// Bounds: a peer's death is seen when its process or socket ends, by a thread
// that sleeps until then; Abort and deadlines when the chunk at hand is done
// (some 10 us). A rank stopped (SIGSTOP) is left at the deadline or by Abort.
// The process keeps no more than the mappings, a socket and a pidfd per peer,
// and that thread; all go with the communicator. Memory is not inherited by
// fork.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_SHM_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_SHM_COMMUNICATOR_H_

#include <memory>

#include "common/base/status.h"
#include "worker/collective/broken.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::shm {

// All ranks of `options` must be on this host, in one network namespace, and
// of one user. At most 128. Errors are those of forming; Unauthenticated
// (WRONG_JOB_KEY) for a rank with another key. `broken` may be empty; it is
// also called when no operation is under way.
StatusOr<std::unique_ptr<Communicator>> FormShm(
    const CommunicatorOptions& options, const BrokenFunction& broken = {});

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_SHM_COMMUNICATOR_H_
