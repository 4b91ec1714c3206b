// Finds again, at the start of the daemon, what an earlier daemon of this node
// has left: gangs, ranks, and processes that no gang knows.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_ADOPTION_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_ADOPTION_H_

#include <string>

#include "common/base/file.h"
#include "worker/agent/ranks/rank_parts.h"
#include "worker/agent/store/removal.h"

namespace lockstep {

// Used before the event loop runs.
class RankAdoption {
 public:
  // All are borrowed.
  RankAdoption(const RankParts& parts, const RankHooks* hooks,
               FileSystem* files, Removal* removal)
      : parts_(parts), hooks_(hooks), files_(files), removal_(removal) {}

  // Takes over the gangs, kills strays, and removes what is damaged.
  void Adopt(const TaskStore::Found& found);

 private:
  void AdoptGang(const StoredGang& stored);
  void AdoptRank(const RankRef& ref);
  void KillStrayProcesses();
  // Kills what ran in the directory of a gang whose record cannot be read, and
  // removes it.
  void ClearDamaged(const std::string& directory);

  const RankParts parts_;
  const RankHooks* const hooks_;
  FileSystem* const files_;
  Removal* const removal_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_ADOPTION_H_
