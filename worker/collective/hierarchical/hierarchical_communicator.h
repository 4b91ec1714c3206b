// Reduces within hosts through shared memory and between them by TCP.
//
// It is made of two communicators: one for the ranks of this host, and one for
// the ranks that this rank meets between the hosts (stage_plan.h). Buffers are
// in shared memory and registered with TCP, so no copy is made between the
// stages. A thread, or the caller that waits, moves operations on. The chunks
// of an operation overlap. The last chunks of an operation overlap with the
// first ones of the next, where all ranks of a host have started that one by
// then.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/broken.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::hierarchical {

using FormFunction = std::function<StatusOr<std::unique_ptr<Communicator>>(
    const CommunicatorOptions&, const BrokenFunction&)>;

// How the two communicators are formed; empty: by FormShm and FormTcp. A
// communicator that breaks reports it at once, and the other is ended.
struct HierarchicalParts {
  FormFunction within;
  FormFunction between;
};

// hosts[r] is the number of rank r's host, counted from 0 by first ranks: the
// same on every rank (BackendChoice::hosts). Needs more than one rank; a single
// host, or one rank on each host, work too. Errors are FormShm's and FormTcp's,
// with global ranks. InvalidArgument: other numbers of hosts.
StatusOr<std::unique_ptr<Communicator>> FormHierarchical(
    const CommunicatorOptions& options, const std::vector<int>& hosts,
    const HierarchicalParts& parts = {});

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
