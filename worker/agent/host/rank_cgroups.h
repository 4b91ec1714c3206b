// Creates, empties and removes the cgroups of this daemon's ranks and tools.
//
// Belongs to the event loop's thread. Nothing here blocks for longer than a
// write to cgroupfs.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_RANK_CGROUPS_H_
#define LOCKSTEP_WORKER_AGENT_HOST_RANK_CGROUPS_H_

#include <optional>
#include <set>
#include <string>

#include "common/base/status.h"
#include "common/model/resources.h"
#include "worker/agent/host/cgroup_tree.h"

namespace lockstep::worker::agent {

class RankCgroups {
 public:
  // `tree` is borrowed. Null: ranks share the daemon's own cgroup, without
  // limits.
  explicit RankCgroups(CgroupTree* tree) : tree_(tree) {}

  bool enabled() const { return tree_ != nullptr; }
  // Creates the group `id` with the limits of `share` and returns its path.
  // REQUIRES: enabled().
  StatusOr<std::string> Make(const std::string& id, const Resources& share);
  // Returns the path of the group `id`; absent if it does not exist.
  std::optional<std::string> Find(const std::string& id) const;
  // Absent if the group does not exist.
  std::optional<CgroupReading> Read(const std::string& id);
  // Kills the processes in the group `id` and removes it, now or in
  // RemoveDropped. Does nothing for "".
  void Drop(const std::string& id);
  // Removes the dropped groups whose processes have ended. Call it
  // periodically.
  void RemoveDropped();

 private:
  CgroupTree* const tree_;
  std::set<std::string> dropped_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_RANK_CGROUPS_H_
