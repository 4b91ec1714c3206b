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

// One user, job or pool.
struct UsageSum {
  int64_t jobs = 0;
  // Seconds times cores and GPUs: reserved, and busy.
  double held_core_seconds = 0;
  double used_core_seconds = 0;
  double held_gpu_seconds = 0;
  double used_gpu_seconds = 0;
  // By currency; "" where the site has no prices.
  std::map<std::string, double> cost;

  void Add(const v1::Job& job);
};

// The sums by name. Jobs that ended before `since` are left out; of others all
// counts, also what came before. The pool is the one that the job asked for;
// "any" otherwise.
std::map<std::string, UsageSum> SumUsage(const std::vector<v1::Job>& jobs,
                                         UsageBy by, WallTime since);

// A row each, the most held first, and their total.
Table UsageTable(const std::map<std::string, UsageSum>& sums, UsageBy by);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_USAGE_H_
