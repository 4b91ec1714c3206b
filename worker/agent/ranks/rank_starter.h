// Starts ranks: creates their directories, cgroups and containers, and has the
// supervisor start their shims.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_STARTER_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_STARTER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/agent/ranks/rank_parts.h"
#include "worker/agent/warm/warm_ranks.h"
#include "worker/agent/warm/warm_spec.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::agent {

// Sizes of the kept beginning and end of a log if `ranks` share `total` bytes.
struct LogShare {
  uint64_t head = 0;
  uint64_t tail = 0;
};
LogShare ShareOfLogs(uint64_t total, size_t ranks);

class RankStarter {
 public:
  // `hooks` and `files` are borrowed.
  RankStarter(const RankParts& parts, const RankHooks* hooks,
              FileSystem* files);

  // The interpreters that ranks may become.
  WarmRanks* warm() { return &warm_; }

  // Call it before the first Start of a gang's ranks. Saves the gang, so the
  // next daemon knows all processes.
  void BeginGang(const GangKey& key);
  // Reports a failure to RankExits as an exit.
  void Start(const RankRef& ref);

 private:
  // Returns how the rank would start now, without a cgroup. Makes its working
  // directory. FailedPrecondition: the rank is native, or runs in a container.
  StatusOr<WarmSample> Sample(const RankRef& ref);
  std::string WorkOf(const RankRef& ref, const LocalGang& gang,
                     const LocalTask& task) const;
  RankEnvironmentInput EnvironmentOf(const RankRef& ref, const LocalGang& gang,
                                     const LocalTask& task) const;
  task::ShimSpec SpecOf(const RankRef& ref, const LocalGang& gang,
                        const LocalTask& task) const;
  Status MakeDirectories(const RankRef& ref, const LocalGang& gang,
                         const LocalTask& task);
  void MakeCgroup(const RankRef& ref, const Resources& share,
                  task::ShimSpec* spec);
  // Turns a rank's `spec` into that of its engine's client.
  Status EnterContainer(const RankRef& ref, const LocalGang& gang,
                        const LocalTask& task, task::ShimSpec* spec);

  const RankParts parts_;
  const RankHooks* const hooks_;
  WarmRanks warm_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_STARTER_H_
