// What a Job says when its parts are put together. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_JOB_VIEW_H_
#define LOCKSTEP_CLIENT_CLI_JOB_VIEW_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "lockstep/v1/event.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep {

// What is left of a rank that ran, with where.
struct RankView {
  const v1::TaskStatus* task = nullptr;
  const v1::RankStatus* rank = nullptr;
  int32_t attempt = 0;
};

// Of every attempt, oldest first; the last one once, whether it is among the
// ended or not. Points into `job`.
std::vector<RankView> AllRanks(const v1::Job& job);
// Of the last attempt only.
std::vector<RankView> LastRanks(const v1::Job& job);

// Sums over ranks and attempts, from cumulative counters.
struct Totals {
  v1::PhaseSeconds phases;
  int64_t samples = 0;
  double cpu_seconds = 0;
  double rank_seconds = 0;
  int64_t memory_peak_bytes = 0;  // Of the rank that had the most.
  int32_t memory_peak_rank = 0;
  std::optional<double> gpu_utilization;  // Weighted by time; none: no GPU.
};
Totals Sum(const v1::Job& job);

double SumOf(const v1::PhaseSeconds& p);
// Name and share of each phase, in tenths of a percent that add up to 1000
// (largest remainders); empty when nothing was measured.
std::vector<std::pair<std::string, int>> PhaseShares(const v1::PhaseSeconds& p);

// The rank whose end decided a failure: not a victim, not OK, the first by
// time. None when it was nothing of the kind.
std::optional<RankView> FirstFailure(const v1::Job& job);

// Phases that ended, and the one it is in until `now`.
std::vector<std::pair<std::string, Duration>> PhasesUntil(const v1::Job& job,
                                                          WallTime now);

// How long it ran: RUNNING, over all attempts, without what it waited for; "-"
// where it never did.
std::string RanText(const v1::Job& job, WallTime now);

// What `submit` and `jobs wait` return for a final state: 0 SUCCEEDED; FAILED
// the first cause's code, else 1; CANCELLED 1.
int ExitCodeOf(const v1::Job& job);

// The sentence of a cause, and where those of the job are hidden from us the
// reason instead; empty: there is none, or it says no more than the state.
std::string CauseText(const v1::Job& job, const v1::Cause& cause);
// What is hidden of a job, and why; empty: nothing is.
std::string HiddenText(const v1::Job& job);

// "exit code 3", "signal 9 (Killed)", "could not be started: No such file".
std::string DescribeExit(const v1::ExitStatus& exit);
// "worker 1".
std::string TaskText(const v1::TaskStatus& task);
// Tasks and ranks that the spec asks for.
int TaskCount(const v1::JobSpec& spec);
int RankCount(const v1::JobSpec& spec);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_JOB_VIEW_H_
