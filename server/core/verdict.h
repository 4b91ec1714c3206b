// Why an attempt ended, and whether the job is tried again. Pure.
#ifndef LOCKSTEP_SERVER_CORE_VERDICT_H_
#define LOCKSTEP_SERVER_CORE_VERDICT_H_

#include <optional>

#include "server/core/job.h"

namespace lockstep {

struct Failure {
  Cause cause;
  // What a shell would have seen of the rank that failed; 1 where no rank did.
  int32_t exit_code = 1;
  // Trying again cannot help: exit 2, 126, 127, out of memory, ranks that
  // disagree about what they compute.
  bool fatal = false;
  // The rank ended because of something else: its word is the last to count.
  bool victim = false;
  // Exit 42: the program asks for a restart; no try is used up.
  bool free_restart = false;
  // Somebody else listens on a port of the gang: other ports are tried, and no
  // try is used up.
  bool port_taken = false;
  // Nobody failed: the job leaves a drained node, which costs nothing.
  bool moved = false;
  // A node could not prepare for now (a full disk, a GPU that is still held,
  // no free port): it is asked again later, and no try is used up.
  bool passing = false;
  // What the job would resume from is not there: it holds (holding.h), and no
  // try is used up.
  bool holds = false;
  // A person said what to resume from: no try is used up.
  bool ordered = false;
  // The rank missed a peer, or a service that may be away.
  bool peer_lost = false;
  // Nothing says that the program is at fault: no try is used up, ten times an
  // hour.
  bool uncharged = false;
  // Whose exit it is; -1: of none.
  int32_t rank = -1;
  // Equal of two failures that are the same: the type of the exception and
  // where the program raised it, or that it probably ran out of memory. Empty:
  // the program did not say, or the failure may be another's or pass by itself
  // (a lost peer, a time-out, an OSError).
  std::string signature = {};
};

// What `rank`'s bad exit means. REQUIRES: it has one.
Failure FailureOfRank(const Job& job, const RankStatus& rank);

// The first cause among the exits of the current tasks, by their corrected
// times (clock_offset.h): a port that was taken; else the earliest rank that
// failed by itself; else the earliest whose last words are of a lost peer, as
// the news of a death may be quicker than the death's own; else the earliest
// of those that were stopped. A worker that waits to be started again alone is
// not a cause. Where the earliest speaks of a lost peer and a rank of the group
// had exited with 0 before it, the cause names that rank (RANK_LEFT_EARLY).
// nullopt: no other rank failed.
std::optional<Failure> FirstFailure(const Job& job);

// Whether `exit` followed from the end of another: it was stopped, or its last
// words are of a peer or of the service that peers meet at.
bool BlamesAPeer(const ExitStatus& exit);

// The ranks that failed after the first cause and because of it are marked as
// victims; those that say the same error are none. `cause` without a rank (a
// lost node, a stalled rank): all that failed are. A worker that waits to be
// started again alone failed by itself.
void MarkVictims(Job* job, const Failure& cause);

// Whether `cause` is how one of the current tasks' ranks failed.
bool IsOfARank(const Job& job, const Cause& cause);

// What a cause that no rank's exit stands for (a lost node, a refusal, a
// timeout) means for the job.
Failure FailureOf(const Cause& cause);

// How long a restart that a program asked for is remembered.
inline constexpr Duration kFreeRestartWindow = std::chrono::seconds(60);

// So many starts on other ports within so long are free.
inline constexpr int kFreePortRestarts = 5;
inline constexpr Duration kPortRestartWindow = std::chrono::seconds(60);

// So many failures within so long use up no try where nothing says that the
// program is at fault; those that come after them do.
inline constexpr int kMostUncharged = 10;
inline constexpr Duration kUnchargedWindow = std::chrono::hours(1);
// The host of some ranks is gone, by silence or by an operator's word.
bool IsOfTheHost(Reason reason);
// Of the last hour. Not by the job's events, of which only the newest are kept:
// a program may make as many as it likes.
int UnchargedFailures(const Job& job, WallTime now);

// A program shows progress by running for so long.
inline constexpr Duration kProgramProgress = std::chrono::minutes(10);

// After a node could not prepare for now: the first time, and at most.
inline constexpr Duration kPassingRefusalBackoff = std::chrono::seconds(2);
inline constexpr Duration kLongestPassingRefusalBackoff =
    std::chrono::seconds(30);
// Of refusals in a row the history has so many; what comes after them takes the
// newest one's place.
inline constexpr int kPassingRefusalsKept = 5;

// The newest attempts that ended because a node could not prepare for now.
int PassingRefusals(const Job& job);

struct RestartPlan {
  bool restart = false;
  // It used up no try because nothing says that the program is at fault.
  bool uncharged = false;
  // Wait so long before the next try.
  Duration backoff{};
  // The counters of the job after this failure.
  int32_t failures_without_progress = 0;
  // Of a job that fails: what is told.
  Cause cause;
  int32_t exit_code = 1;
};

// The rules, for native jobs and programs, before and after RUNNING: fatal
// failures end the job; so does a failure with the same signature as the last
// attempt's, neither of them after progress; a node that could not prepare for
// now costs a wait and no try, 2 s doubling to 30 s, of which up to a quarter
// is left out, by job, so that those who wait for the same do not come
// together; a job that holds, and one that a person told what to resume from,
// use up none; nor does, ten times an hour, a failure that nothing lays at the
// program's door, and after the first of these there is no wait if a node was
// lost; a free restart costs nothing, unless there were three within 60 s
// without progress, and other ports cost nothing, five times within 60 s;
// others cost one try, and progress (a newly committed step; ten minutes of
// running for programs) gives all tries back. Backoff: 1 s doubling to 60 s.
// The caller need not wait for the first restart of what ran, where it ran.
RestartPlan PlanRestart(const Job& job, const Failure& failure,
                        bool made_progress, Time now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_VERDICT_H_
