// When this daemon last knew that it is not alone, and until when the ranks of
// its fenced gangs may go on (server/core/silence.h has the reasoning).
//
// Pure: no I/O, no lock, no clock. Times are nanoseconds of CLOCK_BOOTTIME, as
// in the shims (worker/shim/fence.h). Thread-compatible.
#ifndef LOCKSTEP_WORKER_AGENT_CORE_CONTACTS_H_
#define LOCKSTEP_WORKER_AGENT_CORE_CONTACTS_H_

#include <cstdint>
#include <optional>

#include "common/base/clock.h"
#include "common/model/node.h"

namespace lockstep::worker::agent {

class Contacts {
 public:
  // The coordinator, or a neighbour, has answered what was sent at `sent`. The
  // time of the answer says nothing about the way there: it may have waited.
  void OnCoordinator(int64_t sent);
  void OnNeighbour(int64_t sent);

  // Ranks with this fence end at this time. Absent: there was no contact yet,
  // so an earlier daemon's time stands.
  std::optional<int64_t> Until(const Fence& fence) const;
  // Whether the neighbours are to be asked for the sake of ranks with this
  // fence: the coordinator is late.
  bool NeedsNeighbours(const Fence& fence, int64_t now) const;

 private:
  std::optional<int64_t> coordinator_;
  std::optional<int64_t> neighbour_;
};

// How often a fence is looked after: its time is renewed when it would become
// later by this, and the neighbours are asked when the coordinator has not
// answered for twice as long. A 16th of the fence, 1 s at least.
Duration StepOf(const Fence& fence);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CORE_CONTACTS_H_
