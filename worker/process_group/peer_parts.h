// The parts of a list that are for each rank, or from each, as the communicator
// needs them: in one piece each.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_PEER_PARTS_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_PEER_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/process_group/span_list.h"
#include "worker/process_group/staging.h"

namespace lockstep::worker::process_group {

// Borrows the memory of the list. A part that lies in several spans is copied;
// lists of one span for each rank have none.
class PeerParts {
 public:
  // The splits are elements for each rank, of which `list` has all; `element`:
  // bytes. Copies lie in `memory`, which is borrowed. ResourceExhausted.
  static StatusOr<PeerParts> Of(const SpanList& list,
                                std::span<const uint64_t> splits,
                                size_t element, KeptMemory* memory);

  std::span<const collective::PeerPart> parts() const { return parts_; }
  // Copies the parts that lie in several spans from the list, or to it: the one
  // that they were made of.
  void Pack(const SpanList& list) const;
  void Unpack(const SpanList& list) const;

 private:
  struct Copied {
    size_t part = 0;
    size_t first = 0;  // its first element in the list
  };

  std::vector<collective::PeerPart> parts_;
  std::vector<Copied> copied_;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_PEER_PARTS_H_
