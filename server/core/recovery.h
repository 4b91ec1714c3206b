// Decides whether lost ranks of a job are replaced while the others keep their
// state (docs/design/recovery.md): of a native job, or of a program whose ranks
// have all joined as recoverable. Pure; for lifecycle.cc.
//
// Ranks are lost when they fail, or when one stands still (stall.h); of a
// program, when evidence names them (hang_verdict.h). Where the
// network between the ranks has failed and no process, the ranks have left
// their communicator for kParkedPatience (loss.h): then a recovery replaces
// none. Retries follow the rules of verdict.h and use up the budget of all
// failures; a failure has a wait as for a worker that restarts alone. Ranks
// that had failed when the last recovery was decided, and were reported after
// it, belong to the same failure: they cost nothing more and do not wait.
//
// The gang restarts instead, by restart.h, if
//   - a rank cannot recover, has exited with 0, or none is left that has joined
//     and runs;
//   - the job leaves a drained node as a whole (moving.h);
//   - a rank failed fatally, lost a port, asked for a restart, or disagrees
//     about the state;
//   - its GPU is faulty, its node cools down, is lost or drained, and no other
//     node can replace that one (replacing.h);
//   - the budget is used up;
//   - a replacement does not start in time, or the ranks do not join in time;
//   - ranks have exited with 0 meanwhile.
#ifndef LOCKSTEP_SERVER_CORE_RECOVERY_H_
#define LOCKSTEP_SERVER_CORE_RECOVERY_H_

#include <optional>

#include "server/core/job_view.h"

namespace lockstep::server {

// Whether the processes of all ranks stay when other ranks are lost.
bool AllAreRecoverable(const Job& job);

// Whether the ranks on the node can do nothing without the others: each step of
// the RUNNING job needs all ranks, and a rank that was replaced is a member of
// no communicator. So it is safe to replace them although they may live. A
// program's chief may still write a file that its successor writes, too.
bool NeedTheOthers(const Job& job, const NodeName& node);

// Whether a RUNNING job has lost ranks that are being replaced, or that wait
// for it, or has ranks that have not joined its newest recovery.
bool IsRecovering(const Job& job);

// Whether lost ranks of the job may be replaced.
bool CanRecover(const Job& job, const JobView& view);

// For a job that CanRecover: begins a recovery if it must. Returns the cause
// for which the gang must restart instead; nullopt if there is none.
std::optional<Cause> Recover(Job* job, const JobView& view, Time now);

// A job whose recovery is over has the cause RUNNING again, and the time of the
// end.
void EndRecovery(Job* job, Time now);

// Updates JobView::recovery from `view`. Time in which a node is silent or the
// coordinator is down does not count. Call it before each decision.
void AwaitRecovery(const Job& job, const JobView& view, Time now,
                   RecoveryWaits* waits);

// Returns a cause if all ranks run and have not joined the newest recovery
// after `timeout`, where ranks return after kLongestReturn (elastic.h).
std::optional<Cause> LateRecovery(const Job& job, const JobView& view,
                                  Duration timeout, Time now);

// A recovery that takes longer is explained: by the job's cause, and by an
// event.
inline constexpr Duration kSlowRecovery = std::chrono::seconds(30);

// Says which ranks the others wait for, where the newest recovery takes long.
void NoteSlowRecovery(Job* job, const JobView& view, Time now);

// Returns a cause if ranks have ended with 0 that a recovery waits for: the
// last step was done when others were lost, or moved. A new rank would wait for
// them for ever.
std::optional<Cause> EndedWithoutRecovery(const Job& job);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_RECOVERY_H_
