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

namespace lockstep::worker::collective::hierarchical {

// Memory of the transport's own.
struct OwnMemory {
  // kLineBytes in the host's communicator, for agreements of its ranks; null:
  // the rank is alone on its host.
  const Buffer* agreement = nullptr;
  // `scratch` has one buffer of the communicator between the hosts for each
  // chunk that may be there; the buffers lie in `memory`. Empty: the rank does
  // not take part between the hosts.
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
  // Both communicators report to it when they break.
  std::shared_ptr<LinkedAbort> linked_abort;
  // The plan was given: Tune measures nothing.
  bool plan_given = false;
  // The plan of the ranks that meet between the hosts, rank 0 among them.
  std::string between_line;
  OwnMemory own;
};

std::unique_ptr<Transport> MakeTransport(TransportParts parts);

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HIERARCHICAL_TRANSPORT_H_
