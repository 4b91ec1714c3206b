// Runs the stages of each operation (stage_plan.h) over the two communicators
// of a rank: that of its host and that of its place on all hosts.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_TRANSPORT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_TRANSPORT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/hierarchical/host_layout.h"
#include "worker/collective/hierarchical/linked_abort.h"
#include "worker/collective/hierarchical/sides.h"
#include "worker/collective/threaded_communicator.h"

namespace lockstep::hierarchical {

// What the transport reduces of its own.
struct OwnMemory {
  // kLineBytes of the host's side, for the words of its ranks; null without it.
  const Buffer* agreement = nullptr;
  // `memory` holds what `scratch` is: a buffer of the other side for each chunk
  // that may be there. Empty without it.
  std::unique_ptr<char[]> memory;
  std::vector<const Buffer*> scratch;
};

// After `within` and `between` are formed. ResourceExhausted.
StatusOr<OwnMemory> AllocateOwn(const HostLayout& layout, const Side& within,
                                const Side& between);

struct TransportParts {
  int rank = 0;
  HostLayout layout;
  Side within;
  Side between;
  // Is told by both sides.
  std::shared_ptr<LinkedAbort> linked_abort;
  // The plan was given: nothing is measured.
  bool plan_given = false;
  // The plan of those that meet between the hosts, rank 0 among them.
  std::string between_line;
  OwnMemory own;
};

std::unique_ptr<Transport> MakeTransport(TransportParts parts);

}  // namespace lockstep::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_TRANSPORT_H_
