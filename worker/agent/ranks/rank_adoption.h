// Recovers, at the start of the daemon, the state of an earlier daemon of this
// node: gangs, ranks, and processes without a gang.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_ADOPTION_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_ADOPTION_H_

#include <string>

#include "common/base/file.h"
#include "worker/agent/ranks/rank_parts.h"
#include "worker/agent/store/removal.h"

namespace lockstep::worker::agent {

// Used before the event loop runs.
class RankAdoption {
 public:
  // All are borrowed.
  RankAdoption(const RankParts& parts, const RankHooks* hooks,
               FileSystem* files, Removal* removal)
      : parts_(parts), hooks_(hooks), files_(files), removal_(removal) {}

  // Adopts the gangs, kills stray processes, and removes damaged records.
  void Adopt(const TaskStore::Found& found);

 private:
  void AdoptGang(const StoredGang& stored);
  void AdoptRank(const RankRef& ref);
  void KillStrayProcesses();
  // Kills the processes in the directory of a gang whose record is unreadable,
  // and removes the directory.
  void ClearDamaged(const std::string& directory);

  const RankParts parts_;
  const RankHooks* const hooks_;
  FileSystem* const files_;
  Removal* const removal_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_ADOPTION_H_
