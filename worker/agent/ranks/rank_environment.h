// The environment of a rank's process, all of it. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_ENVIRONMENT_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_ENVIRONMENT_H_

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/assignment.h"

namespace lockstep {

using Environment = std::map<std::string, std::string>;

// What a job may ask to inherit where the host's owner says nothing else: what
// leads to the outside, time zone and language.
std::vector<std::string> DefaultInherit();

// "NAME", "PREFIX*" or "*". InvalidArgument: it is none.
Status CheckInherit(const std::vector<std::string>& inherit);

struct RankEnvironmentInput {
  // The daemon's own environment; only an allow-list of it is inherited.
  Environment daemon;
  // Which of it, beside that, a job may ask for, by name or "PREFIX*". Never
  // LD_*, LOCKSTEP_* and what systemd hands to the daemon. Native ranks get
  // LOCKSTEP_MODULE_DIR and LOCKSTEP_NCCL_LIBRARY unasked.
  std::vector<std::string> inherit = DefaultInherit();
  // REQUIRES: has a cluster spec that holds `rank`, and a spec whose `task`
  // holds it too.
  const Assignment* assignment = nullptr;
  const LocalTask* task = nullptr;
  int32_t rank = 0;
  // The home of the rank's user, if that is another user than the daemon's.
  std::string home;
  // Name of the network interface that has the node's data address; empty: not
  // known.
  std::string data_interface;
  // Where the rank may leave a word about its error, as torchelastic's record()
  // does.
  std::string error_file;
  // Path of the daemon's link socket, and the number of the file in which the
  // rank finds its nonce.
  std::string link;
  int nonce_fd = 3;
};

// From weakest to strongest: what is inherited, defaults (threads by the
// rank's share of the cores, unbuffered Python, the network's interface), the
// job's and its role's variables, what the contracts of the frameworks say
// (RankEnvironment of common/model), LOCKSTEP_*. docs/environment.md has each.
//
// A program of several ranks a task sees the GPUs of them all, in the order of
// LOCAL_RANK, as torchrun's workers do; a native rank sees its own alone.
Environment MakeRankEnvironment(const RankEnvironmentInput& input);

// "NAME=value", sorted.
std::vector<std::string> ToStrings(const Environment& environment);
// The reverse, of environ.
Environment FromStrings(const std::vector<std::string>& strings);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_ENVIRONMENT_H_
