// The environment of a rank's process, all of it. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_RANK_ENVIRONMENT_H_
#define LOCKSTEP_WORKER_AGENT_RANK_ENVIRONMENT_H_

#include <map>
#include <string>
#include <vector>

#include "common/model/assignment.h"

namespace lockstep {

using Environment = std::map<std::string, std::string>;

struct RankEnvironmentInput {
  // The daemon's own environment; only an allow-list of it is inherited.
  Environment daemon;
  // REQUIRES: has a cluster spec that holds `rank`, and a spec whose `task`
  // holds it too.
  const Assignment* assignment = nullptr;
  const LocalTask* task = nullptr;
  int32_t rank = 0;
  // Of the rank's home, if it runs as another user than the daemon.
  std::string home;
  // Path of the daemon's link socket, and the number of the file in which the
  // rank finds its nonce.
  std::string link;
  int nonce_fd = 3;
};

// From weakest to strongest: what is inherited, defaults (threads by the
// rank's share of the cores, unbuffered Python), the job's and its role's
// variables, what the contracts of the frameworks say, LOCKSTEP_*.
Environment MakeRankEnvironment(const RankEnvironmentInput& input);

// "NAME=value", sorted.
std::vector<std::string> ToStrings(const Environment& environment);
// The reverse, of environ.
Environment FromStrings(const std::vector<std::string>& strings);

// Cores of one of the task's ranks; 0: not limited.
double CpusPerRank(const LocalTask& task);
// GPUs of `rank`: what the cluster spec says.
std::vector<int32_t> GpusOfRank(const Assignment& assignment, int32_t rank);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_RANK_ENVIRONMENT_H_
