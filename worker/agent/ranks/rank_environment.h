// Builds the complete environment of a rank's process. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_ENVIRONMENT_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_ENVIRONMENT_H_

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/assignment.h"

namespace lockstep::worker::agent {

using Environment = std::map<std::string, std::string>;

// Default of the variables that a job may request: proxies, time zone and
// language.
std::vector<std::string> DefaultInherit();

// Accepts "NAME", "PREFIX*" or "*"; else InvalidArgument.
Status CheckInherit(const std::vector<std::string>& inherit);

struct RankEnvironmentInput {
  // The daemon's own environment; ranks inherit only an allow-list of it.
  Environment daemon;
  // Variables that a job may request in addition, by name or "PREFIX*". LD_*,
  // LOCKSTEP_* and systemd's variables are excluded. Native ranks always get
  // LOCKSTEP_MODULE_DIR and LOCKSTEP_NCCL_LIBRARY.
  std::vector<std::string> inherit = DefaultInherit();
  // REQUIRES: it has a cluster spec that contains `rank`, and a spec whose
  // `task` contains it.
  const Assignment* assignment = nullptr;
  const LocalTask* task = nullptr;
  int32_t rank = 0;
  // Home of the rank's user, if it is not the daemon's user.
  std::string home;
  // Name of the network interface with the node's data address; empty: unknown.
  std::string data_interface;
  // File in which the rank may describe its error, as torchelastic's record()
  // does.
  std::string error_file;
  // Directory in which PyTorch's flight recorder of a rank with GPUs may write;
  // empty: it is not asked.
  std::string flight_directory;
  // Of a native rank: path of the daemon's link socket, and the descriptor of
  // the rank's nonce.
  std::string link;
  int nonce_fd = 3;
  // Of a program's rank: path of the file with both. Empty: it has no link.
  std::string link_file;
};

// Layers, from weakest to strongest: inherited variables; defaults (threads by
// the rank's share of the cores, unbuffered Python, the network interface);
// variables of the job and its role; the frameworks' contracts (RankEnvironment
// in common/model); LOCKSTEP_*. docs/environment.md lists each.
//
// A program with several ranks per task sees the GPUs of all of them, in the
// order of LOCAL_RANK, like torchrun's workers. A native rank sees only its
// own.
Environment MakeRankEnvironment(const RankEnvironmentInput& input);

// "NAME=value", sorted.
std::vector<std::string> ToStrings(const Environment& environment);
// Parses the strings of environ.
Environment FromStrings(const std::vector<std::string>& strings);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_ENVIRONMENT_H_
