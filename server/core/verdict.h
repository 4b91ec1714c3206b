// Determines why an attempt ended, and whether the job is retried. Pure.
#ifndef LOCKSTEP_SERVER_CORE_VERDICT_H_
#define LOCKSTEP_SERVER_CORE_VERDICT_H_

#include <optional>

#include "server/core/job.h"

namespace lockstep::server {

struct Failure {
  Cause cause;
  // The exit code of the failed rank as a shell shows it; 1 if no rank failed.
  int32_t exit_code = 1;
  // A retry cannot help: exit 2, 126, 127, out of memory, ranks that
  // disagree about what they compute.
  bool fatal = false;
  // The rank ended because of another failure. Its exit counts last as a cause.
  bool victim = false;
  // Exit 42: the program requests a restart, which uses up no try.
  bool free_restart = false;
  // Another process listens on a port of the gang. Other ports are tried, which
  // uses up no try.
  bool port_taken = false;
  // The job leaves a drained node. This is not a failure and uses up no try.
  bool moved = false;
  // A node temporarily could not prepare (a full disk, a GPU that is still
  // held, no free port). It is asked again later, which uses up no try.
  bool passing = false;
  // The state to resume from is missing. The job holds (holding.h), which uses
  // up no try.
  bool holds = false;
  // A user set what to resume from, which uses up no try.
  bool ordered = false;
  // The rank lost a peer, or a service that may be unavailable.
  bool peer_lost = false;
  // There is no evidence against the program. This uses up no try, up to ten
  // times an hour.
  bool uncharged = false;
  // The rank that exited; -1 if the cause is not an exit.
  int32_t rank = -1;
  // Equal signatures identify the same failure: the type of the exception and
  // the place where the program raised it, or a probable lack of memory. Empty
  // if the program did not report it, or if the failure may have another origin
  // or be temporary (a lost peer, a timeout, an OSError).
  std::string signature = {};
};

// Returns the failure for `rank`'s exit. REQUIRES: it exited, not with 0.
Failure FailureOfRank(const Job& job, const RankStatus& rank);

// Returns the first cause among the exits of the current tasks, by their
// corrected times (clock_offset.h): a port that was taken; otherwise the
// earliest rank that failed by itself; otherwise the earliest whose exit
// message names a lost peer, because peers may report a death before the dead
// rank's own node does; otherwise the earliest that was stopped. A worker that
// waits to restart alone is not a cause. If the earliest names a lost peer, and
// a rank of the group exited with 0 before it, the cause names that rank
// (RANK_LEFT_EARLY). nullopt if no other rank failed.
std::optional<Failure> FirstFailure(const Job& job);

// Whether `exit` is a consequence of another rank's end: it was stopped, or its
// exit message names a peer or the rendezvous service.
bool BlamesAPeer(const ExitStatus& exit);

// Marks as victims the ranks that failed after the first cause and because of
// it, but not those that report the same error. If `cause` has no rank (a lost
// node, a stalled rank), all failed ranks are victims. A worker that waits to
// restart alone failed by itself.
void MarkVictims(Job* job, const Failure& cause);

// Whether `cause` is the failure of a rank of the current tasks.
bool IsOfARank(const Job& job, const Cause& cause);

// Whether an attempt that ends for `reason` failed by what its ranks did. Then
// their nodes keep evidence of those that still run.
bool FailedByItsRanks(Reason reason);

// Returns the failure for a cause that is not a rank's exit (a lost node, a
// refusal, a timeout).
Failure FailureOf(const Cause& cause);

// How long a restart that a program requested is remembered.
inline constexpr Duration kFreeRestartWindow = std::chrono::seconds(60);

// At most this many starts on other ports are free within the window.
inline constexpr int kFreePortRestarts = 5;
inline constexpr Duration kPortRestartWindow = std::chrono::seconds(60);

// At most this many failures without evidence against the program use up no try
// within the window. Further ones do.
inline constexpr int kMostUncharged = 10;
inline constexpr Duration kUnchargedWindow = std::chrono::hours(1);
// Whether the host of some ranks is gone, by silence or by an operator's
// command.
bool IsOfTheHost(Reason reason);
// Counts the uncharged failures of the last hour. It does not use the job's
// events: only the newest are kept, and a program may add any number.
int UnchargedFailures(const Job& job, WallTime now);

// The wait before the next try: 1 s, doubled with each further failure, at most
// kLongestBackoff.
Duration Backoff(int32_t failures);

// A program that runs for this long makes progress.
inline constexpr Duration kProgramProgress = std::chrono::minutes(10);

// No job waits for longer before its next try.
inline constexpr Duration kLongestBackoff = std::chrono::seconds(60);

// The first and the longest backoff after a node temporarily could not prepare.
inline constexpr Duration kPassingRefusalBackoff = std::chrono::seconds(2);
inline constexpr Duration kLongestPassingRefusalBackoff =
    std::chrono::seconds(30);
// The history keeps this many refusals in a row. A further one replaces the
// newest.
inline constexpr int kPassingRefusalsKept = 5;

// Counts the newest attempts in a row that ended because a node temporarily
// could not prepare.
int PassingRefusals(const Job& job);

struct RestartPlan {
  bool restart = false;
  // No try was used up, because there is no evidence against the program.
  bool uncharged = false;
  // The wait before the next try.
  Duration backoff{};
  // The counters of the job after this failure.
  int32_t failures_without_progress = 0;
  // The cause to report if the job fails.
  Cause cause;
  int32_t exit_code = 1;
};

// The rules for retries, for native jobs and programs, before and after
// RUNNING:
// - A fatal failure ends the job. So does one with the same signature as the
//   last attempt's if neither attempt made progress.
// - A node that temporarily cannot prepare costs a wait and no try: 2 s,
//   doubling to 30 s, minus up to a quarter that depends on the job, so that
//   waiting jobs do not return together.
// - A job that holds, or whose restore target a user set, uses up no try.
// - A failure without evidence against the program uses up no try, ten times an
//   hour. After the first there is no wait if a node was lost.
// - A free restart costs nothing, unless there were three within 60 s without
//   progress. Neither do other ports, five times within 60 s.
// - Others cost one try. Progress (a committed step, or ten minutes of running
//   for programs) restores all tries.
// - The backoff is 1 s, doubling to 60 s. The caller may skip it for the first
//   restart after running, on the same nodes.
RestartPlan PlanRestart(const Job& job, const Failure& failure,
                        bool made_progress, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_VERDICT_H_
