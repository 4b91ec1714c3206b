// How the ranks learn each other's addresses: each writes one line into the
// rendezvous store, rank 0 gathers them and publishes one table, with the
// plan, in values of at most 30 KiB. So a forming of n ranks takes O(n) reads
// and writes.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_DIRECTORY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/tcp/plan.h"

namespace lockstep::worker::collective::tcp {

struct Place {
  std::string address;  // in digits
  uint16_t port = 0;
  std::string host;  // equal for ranks of one machine; no spaces
};

struct Directory {
  std::vector<Place> places;  // by rank
  Plan plan;
  bool plan_given = false;  // to rank 0
  std::string session;      // 32 bytes, fresh for each forming
};

// Publishes `mine` and returns what all ranks are to use; the plan is rank 0's
// options.reduction_plan, or MakePlan's where there is none.
// FailedPrecondition: a rank, which the error names, wrote something else;
// InvalidArgument: the reduction plan does not fit; DeadlineExceeded: names the
// ranks that have not come.
StatusOr<Directory> Exchange(const CommunicatorOptions& options,
                             const Place& mine);

// The same text for all ranks of this machine, in whatever network namespace.
std::string MachineId();

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_DIRECTORY_H_
