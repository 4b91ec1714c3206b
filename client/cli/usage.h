// Sums what jobs held and what they used of it. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_USAGE_H_
#define LOCKSTEP_CLIENT_CLI_USAGE_H_

#include <map>
#include <string>
#include <vector>

#include "client/cli/text.h"
#include "common/base/clock.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

enum class UsageBy { kUser, kJob, kPool };

// The time that counts.
struct UsageWindow {
  WallTime since{};
  WallTime now{};
};

// One user, job or pool.
struct UsageSum {
  int64_t jobs = 0;
  // Seconds times cores and GPUs: reserved, and busy.
  double held_core_seconds = 0;
  double used_core_seconds = 0;
  double held_gpu_seconds = 0;
  double used_gpu_seconds = 0;
  // Of the held ones: of ranks whose GPUs have no readings.
  double unread_gpu_seconds = 0;
  // By currency; "" where the site has no prices. The used part of a job's cost
  // is the used part of its GPU time or, if it holds no GPU, of its core time.
  std::map<std::string, double> cost;
  std::map<std::string, double> used_cost;
  // An attempt had begun before the window: what it used within is taken as its
  // share of the attempt's time, because a rank reports only sums.
  bool used_estimated = false;
  // Attempts before the window are not known one by one any more, only their
  // sum, which is taken as spread evenly from the submission on.
  bool held_estimated = false;

  // Adds what falls into the window. A gang holds all of its cores and GPUs or
  // none, so what it held, and its cost, is clipped by time.
  void Add(const v1::Job& job, const UsageWindow& window);
  void Add(const UsageSum& other);
};

// The sums by name. Jobs that ended before the window are left out. The pool is
// the one that the job asked for; "any" otherwise.
std::map<std::string, UsageSum> SumUsage(const std::vector<v1::Job>& jobs,
                                         UsageBy by, const UsageWindow& window);

// A row each, the most held first, and their total. "~" marks estimates.
Table UsageTable(const std::map<std::string, UsageSum>& sums, UsageBy by);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_USAGE_H_
