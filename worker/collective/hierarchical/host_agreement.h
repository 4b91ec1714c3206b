// Agreements between the ranks of one host, between the stages.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_AGREEMENT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_AGREEMENT_H_

#include <cstddef>
#include <string>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/hierarchical/sides.h"

namespace lockstep::worker::collective::hierarchical {

// The longest line of the plan between the hosts.
inline constexpr size_t kLineBytes = 512;

// Used by the thread that executes. All ranks of the host make the same calls.
class HostAgreement {
 public:
  // All are borrowed. `buffer`: kLineBytes of the communicator within the host;
  // null where the rank is alone on its host.
  HostAgreement(Sides* sides, const Buffer* buffer, bool leader)
      : sides_(*sides), buffer_(buffer), leader_(leader) {}

  // Whether `mine` is true on all ranks of the host. It is a part of `running`.
  StatusOr<bool> All(bool mine, const Operation& running, MonoTime deadline);
  // The leader's `mine`, on all ranks of the host.
  StatusOr<std::string> OfLeader(const std::string& mine, MonoTime deadline);

 private:
  Sides& sides_;
  const Buffer* const buffer_;
  const bool leader_;
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_HOST_AGREEMENT_H_
