// Keeps the ranks of fenced gangs going while this node is not alone: renews
// their time when the coordinator has answered, and asks the neighbours when it
// does not (worker/agent/core/contacts.h).
//
// Belongs to the event loop's thread; a thread of its own asks.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_FENCES_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_FENCES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/file.h"
#include "common/model/probe.h"
#include "worker/agent/core/contacts.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/loop/work_thread.h"

namespace lockstep::worker::agent {

class RankFences {
 public:
  // Pointers are borrowed. `renew` gives the gang's ranks that time.
  RankFences(const DaemonSetup* setup, EventLoop* loop, FileSystem* files,
             const CoreRunner* core,
             std::function<void(const GangKey&, int64_t)> renew);

  // Reads the neighbours that an earlier daemon was told.
  void Load();
  // The coordinator has named the neighbours.
  void SetNeighbours(const NeighbourList& list);
  // The coordinator has answered what was sent at `sent`.
  void OnCoordinator(int64_t sent);
  // The gang's ranks end at this time (ShimSpec::fence_nanos); 0: they have no
  // fence.
  int64_t Until(const GangKey& key) const;
  // Call it a few times a second.
  void Tick();

 private:
  void Renew();
  void AskNeighbours(Duration timeout);

  const DaemonSetup* const setup_;
  EventLoop* const loop_;
  FileSystem* const files_;
  const CoreRunner* const core_;
  const std::function<void(const GangKey&, int64_t)> renew_;
  Contacts contacts_;
  NeighbourList neighbours_;
  // The last renewal of each gang.
  std::map<GangKey, int64_t> renewed_;
  bool asking_ = false;
  MonoTime next_asking_{};
  Lifetime lifetime_;
  // Created on demand. Last: its jobs use the others.
  std::unique_ptr<WorkThread> thread_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_FENCES_H_
