// Values derived from several parts of a Job. Pure.
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

namespace lockstep::cli {

// A rank that ran, with its place.
struct RankView {
  const v1::TaskStatus* task = nullptr;
  const v1::RankStatus* rank = nullptr;
  int32_t attempt = 0;
};

// Returns the ranks of every attempt, oldest first. The last attempt appears
// once, whether it has ended or not. Points into `job`.
std::vector<RankView> AllRanks(const v1::Job& job);
// Returns the ranks of the last attempt.
std::vector<RankView> LastRanks(const v1::Job& job);

// Whether an attempt runs that is not among job.attempts().
bool AttemptGoesOn(const v1::Job& job);
// Returns the first known time of the current generation. Nullopt if none is.
std::optional<google::protobuf::Timestamp> CurrentStart(const v1::Job& job);

// Sums over ranks and attempts, from cumulative counters.
struct Totals {
  v1::PhaseSeconds phases;
  int64_t samples = 0;
  double cpu_seconds = 0;
  double rank_seconds = 0;
  int64_t memory_peak_bytes = 0;  // Of the rank with the largest peak.
  int32_t memory_peak_rank = 0;
  std::optional<double> gpu_utilization;  // Time-weighted; absent without GPU.
  // Of the ranks that know it; absent if none does.
  std::optional<int64_t> network_sent_bytes;
  int64_t network_received_bytes = 0;
};
Totals Sum(const v1::Job& job);

double SumOf(const v1::PhaseSeconds& p);
// Returns name and share of each phase, in tenths of a percent that add up to
// 1000 (largest remainders). Empty if nothing was measured.
std::vector<std::pair<std::string, int>> PhaseShares(const v1::PhaseSeconds& p);

// Returns the rank whose end caused a failure: the first by time that is not OK
// and not a victim. Nullopt if there is none.
std::optional<RankView> FirstFailure(const v1::Job& job);

// Returns the phases that ended, and the current one until `now`.
std::vector<std::pair<std::string, Duration>> PhasesUntil(const v1::Job& job,
                                                          WallTime now);

// Returns the time in RUNNING over all attempts, without waits; "-" if it never
// ran.
std::string RanText(const v1::Job& job, WallTime now);

// Returns the exit code of `submit` and `jobs wait` for a final state: 0 for
// SUCCEEDED; for FAILED the first cause's code, or 1; 1 for CANCELLED.
int ExitCodeOf(const v1::Job& job);

// Returns the cause's sentence, or its reason if the caller may not see the
// job's details. Empty if there is none or it only repeats the state.
std::string CauseText(const v1::Job& job, const v1::Cause& cause);
// Returns which details of a job are hidden, and why, or "".
std::string HiddenText(const v1::Job& job);

// "exit code 3", "signal 9 (Killed)", "could not be started: No such file".
std::string DescribeExit(const v1::ExitStatus& exit);
// "worker 1".
std::string TaskText(const v1::TaskStatus& task);
// Tasks and ranks of the spec.
int TaskCount(const v1::JobSpec& spec);
int RankCount(const v1::JobSpec& spec);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_JOB_VIEW_H_
