// Has daemons check GPUs: those whose time of being withheld is over, and those
// that operators ask for (server/core/member_checks.h).
//
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_GPU_CHECKS_H_
#define LOCKSTEP_SERVER_COORDINATOR_GPU_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/gpu_check.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/committer.h"
#include "server/coordinator/idempotency_cache.h"

namespace lockstep::server {

class GpuChecks {
 public:
  // Called once, with the coordinator's lock held: must not block.
  using Done = std::function<void(StatusOr<std::vector<GpuCheck>>)>;

  // Both outlive this object.
  GpuChecks(ClusterState* state, Committer* committer)
      : state_(*state), committer_(*committer) {}

  // Begins a check of `gpus` of the node, or of all that may be checked. Not
  // OK: `done` is not called; NotFound or an error of MayCheck. A repeated
  // request joins the check that it began, and its first `done` gets Aborted.
  Status Ask(const RequestKey& request, const NodeName& node,
             const std::vector<int32_t>& gpus, Done done, Time now);
  // Takes the answer of the node's daemon. Unexpected ones are dropped.
  void TakeAnswer(const NodeName& node, const GpuCheckAnswer& answer, Time now);
  // Ends checks whose stream has ended or whose answer is late, and begins
  // those that are due.
  void Tick(Time now);
  // The coordinator ends: every caller gets `status`.
  void EndAll(const Status& status);

 private:
  struct Pending {
    NodeName node;
    SessionId session = 0;
    MonoTime deadline;
    // Of an operator's.
    std::optional<RequestKey> request;
    Done done;
  };

  // The GPUs that jobs hold there. All, while left-over ranks may run.
  std::set<int32_t> HeldGpus(const NodeName& node);
  void Begin(const NodeName& node, const std::vector<int32_t>& gpus,
             const std::set<int32_t>& held, Pending pending, Time now);
  void End(uint64_t id, GpuCheckAnswer answer, Time now);

  ClusterState& state_;
  Committer& committer_;
  uint64_t next_id_ = 1;
  // By the order's id.
  std::map<uint64_t, Pending> pending_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_GPU_CHECKS_H_
