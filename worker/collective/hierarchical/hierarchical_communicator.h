// Reduces within hosts through shared memory and between them by TCP.
//
// Two communicators under one: of the ranks of this host, and of the ranks
// that this one meets between the hosts (stage_plan.h). Buffers are those of
// the shared memory, registered with TCP, so nothing is copied between the
// stages. A thread moves operations on, or whoever waits for one; the chunks of
// an operation overlap, and so do the last of one with the first of the next,
// where all ranks of a host have that one by then.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/broken.h"
#include "worker/collective/communicator.h"

namespace lockstep {

using FormFunction = std::function<StatusOr<std::unique_ptr<Communicator>>(
    const CommunicatorOptions&, const BrokenFunction&)>;

// How the two are formed; empty: FormShm and FormTcp. When one breaks it tells
// so at once, and the other is ended.
struct HierarchicalParts {
  FormFunction within;
  FormFunction between;
};

// hosts[r] is the number of rank r's host, counted from 0 by first ranks: the
// same on every rank (BackendChoice::hosts). More than one rank; one host only,
// or one rank on each, work too. Errors are FormShm's and FormTcp's, with the
// ranks as of all, and InvalidArgument for other numbers of hosts.
StatusOr<std::unique_ptr<Communicator>> FormHierarchical(
    const CommunicatorOptions& options, const std::vector<int>& hosts,
    const HierarchicalParts& parts = {});

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
