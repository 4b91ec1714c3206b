// Ranks in containers: builds the command of such a rank's shim.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_CONTAINER_RANK_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_CONTAINER_RANK_H_

#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/assignment.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/core/local_gang.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/ranks/rank_environment.h"
#include "worker/agent/store/rank_table.h"
#include "worker/agent/store/task_store.h"
#include "worker/container/container_engine.h"
#include "worker/container/reach.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::agent {

// All pointers are borrowed and set.
struct ContainerRankInput {
  RankRef ref;
  const DaemonSetup* setup = nullptr;
  const LocalGang* gang = nullptr;
  const LocalTask* task = nullptr;
  const container::ContainerEngine* engine = nullptr;
  RankPaths paths;
  // Default working directory of the rank, kept for the job's life.
  std::string work;
  // Directories of the gang's packages, for PYTHONPATH.
  std::vector<std::string> code;
  RankEnvironmentInput environment;
  // Directory of the link's socket; empty: there is none for containers.
  std::string link_directory;
  // The node enforces limits.
  bool limits = false;
  // Returns a directory to mount, as the user in the container reaches it.
  std::function<StatusOr<container::ReachedDirectory>(
      const container::ContainerUser& user, const std::string& path)>
      reach;
};

// Turns the `spec` of a rank's shim into that of the engine's client, which
// runs the rank in a container. Writes the container's environment to a file in
// the rank's directory.
Status PutInContainer(const ContainerRankInput& input, task::ShimSpec* spec);

// Whether a rank of the table may hold the container of that name.
bool MayHold(const RankTable& table, const std::string& container);

// Returns the container name for this start of a rank.
std::string RankContainerName(const RankRef& ref, const std::string& task_id);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_CONTAINER_RANK_H_
