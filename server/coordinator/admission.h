// Which daemon speaks for a node. A daemon that registers while the stream of
// another one of its name is open is a newcomer (server/core/membership.h): it
// waits with its stream open until it is admitted or refused. No thread and no
// lock waits with it.
// Thread-compatible; guarded by the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_ADMISSION_H_
#define LOCKSTEP_SERVER_COORDINATOR_ADMISSION_H_

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/committer.h"
#include "server/coordinator/failure_detector.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/reconciler.h"

namespace lockstep {

class Admission {
 public:
  // All outlive it.
  struct Parts {
    ClusterState* state;
    HistoryGuard* guard;
    FailureDetector* detector;
    Committer* committer;
    Reconciler* reconciler;
  };
  explicit Admission(const Parts& parts) : parts_(parts) {}

  // Admits the daemon of `arrival`, or lets it wait as a newcomer. Unavailable:
  // another newcomer of the node is judged just now. Aborted: see
  // Membership::Register and Membership::CheckBarred.
  Status Register(const NodeInfo& info, Arrival arrival, Time now);
  // Admits or refuses the node's newcomer, if there is one and it is time.
  void Judge(const NodeName& node, Time now);
  void JudgeAll(Time now);

 private:
  // Returns whether the daemon is a newcomer, which then waits; `*arrival` was
  // moved from.
  StatusOr<bool> AwaitJudgement(const NodeInfo& info, Arrival* arrival,
                                Time now);
  // Gives the node to the stream.
  Status Admit(const NodeInfo& info, Arrival arrival, Time now);
  // Stores what registers. A store that cannot write keeps out only nodes that
  // were never seen.
  Status AdmitMember(const NodeInfo& info, Time now);
  // `other` claims the name of a daemon that lives.
  void NoteContest(const NodeInfo& other, Time now, bool proven);

  const Parts parts_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_ADMISSION_H_
