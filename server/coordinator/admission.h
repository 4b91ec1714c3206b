// Decides which daemon speaks for a node. A daemon that registers while another
// daemon of the same name has an open stream is a newcomer
// (server/core/membership.h). Its stream waits, without a thread or lock, until
// it is admitted or rejected. Thread-compatible; guarded by the coordinator's
// lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_ADMISSION_H_
#define LOCKSTEP_SERVER_COORDINATOR_ADMISSION_H_

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/committer.h"
#include "server/coordinator/failure_detector.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/reconciler.h"

namespace lockstep::server {

class Admission {
 public:
  // All outlive this object.
  struct Parts {
    ClusterState* state;
    HistoryGuard* guard;
    FailureDetector* detector;
    Committer* committer;
    Reconciler* reconciler;
  };
  explicit Admission(const Parts& parts) : parts_(parts) {}

  // Admits the daemon of `arrival` or makes it wait as a newcomer. Unavailable
  // if another newcomer of the node is being judged. Aborted: see
  // Membership::Register and Membership::CheckBarred.
  Status Register(const NodeInfo& info, Arrival arrival, Time now);
  // Admits or rejects the node's newcomer, if there is one and it is due.
  void Judge(const NodeName& node, Time now);
  void JudgeAll(Time now);

 private:
  // Returns true if the daemon is a newcomer, which then waits and has consumed
  // `*arrival`.
  StatusOr<bool> AwaitJudgement(const NodeInfo& info, Arrival* arrival,
                                Time now);
  // Assigns the node to the stream.
  Status Admit(const NodeInfo& info, Arrival arrival, Time now);
  // Stores the registration. If the store cannot write, only unknown nodes are
  // rejected.
  Status AdmitMember(const NodeInfo& info, std::vector<GpuReclaim> reclaims,
                     Time now);
  // Records that `other` claims the name of a live daemon.
  void NoteContest(const NodeInfo& other, Time now, bool proven);

  const Parts parts_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_ADMISSION_H_
