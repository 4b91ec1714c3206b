// Lists the files that a gang left when its ranks ended: in the output
// directory, on the node of rank 0, and in the working directories of its
// tasks. The report of a gang's end waits for this for a limited time.
//
// Belongs to the event loop's thread; threads of its own read the directories.
#ifndef LOCKSTEP_WORKER_AGENT_WORK_GANG_LEFTOVERS_H_
#define LOCKSTEP_WORKER_AGENT_WORK_GANG_LEFTOVERS_H_

#include <functional>
#include <map>
#include <vector>

#include "common/model/node.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/loop/work_thread.h"
#include "worker/agent/work/work_directories.h"

namespace lockstep::worker::agent {

class GangLeftovers {
 public:
  // All are borrowed. Calls `found` when the search for Awaits has ended or
  // timed out.
  GangLeftovers(EventLoop* loop, const CoreRunner* core,
                const WorkDirectories* work,
                std::function<void(const GangKey&)> found);

  // Searches a stopped gang's files, once. Returns true if the report of the
  // gang's end must wait for the search.
  bool Awaits(const GangKey& key);
  // Takes the results of an earlier daemon, and searches for the rest.
  void Adopt(const GangKey& key, const GangStatus& status);
  // A rank of the gang restarts: drops all results until its next end.
  void Reset(const GangKey& key) { gangs_[key] = Leftovers(); }
  void Forget(const GangKey& key) { gangs_.erase(key); }
  // Adds the results to `status`.
  void AddTo(const GangKey& key, GangStatus* status) const;

 private:
  enum class Search { kNone, kRuns, kDone };
  struct Leftovers {
    Search output_search = Search::kNone;
    std::vector<OutputFile> outputs;
    Search work_search = Search::kNone;
    std::vector<WorkDirectory> work;
  };

  bool AwaitsOutputs(const GangKey& key, const LocalGang& gang);
  bool AwaitsWork(const GangKey& key, const LocalGang& gang);
  void OnOutputs(const GangKey& key, std::vector<OutputFile> outputs);
  void OnWork(const GangKey& key, std::vector<WorkDirectory> work);

  EventLoop* const loop_;
  const CoreRunner* const core_;
  const WorkDirectories* const work_;
  const std::function<void(const GangKey&)> found_;
  std::map<GangKey, Leftovers> gangs_;
  Lifetime lifetime_;
  // Last: their jobs use the others. Two, so an output directory that hangs
  // does not block the working directories.
  WorkThread output_thread_;
  WorkThread work_thread_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_WORK_GANG_LEFTOVERS_H_
