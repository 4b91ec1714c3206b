// Prefetches images and packages for waiting jobs, as PrefetchCore decides: one
// image and one package at a time, and none while a gang is being prepared.
//
// Belongs to the event loop's thread. A fetch runs on a thread of its own and
// returns by a post.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_NODE_PREFETCHER_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_NODE_PREFETCHER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/model/assignment.h"
#include "worker/agent/containers/containers.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/prepare/prefetch_core.h"
#include "worker/agent/prepare/prepare_options.h"
#include "worker/package/cancellation.h"
#include "worker/package/package_cache.h"

namespace lockstep::worker::agent {

class NodePrefetcher {
 public:
  // Pointers are borrowed. `dir` is where free space is measured. `busy`
  // returns whether a gang is being prepared. `report` sends the prefetched
  // items to the coordinator.
  NodePrefetcher(const PrepareOptions* options, std::string dir,
                 EventLoop* loop, Containers* containers,
                 std::function<bool()> busy,
                 std::function<void(const std::vector<Prefetched>&)> report);
  // Cancels running fetches and waits for them.
  ~NodePrefetcher();
  // Cancels all fetches for good and waits for them.
  void CancelAll();

  // Sets all items that the coordinator wants on this node.
  void Want(const Prefetch& wanted);

 private:
  struct Fetch {
    std::string key;  // Empty: none runs.
    std::shared_ptr<package::Cancellation> cancel;
    std::thread thread;
  };

  // Starts due fetches, and cancels unwanted ones.
  void FetchNext();
  void BeginDue(MonoTime now);
  void FetchImage(const ImageContent& wanted);
  void FetchPackage(const Package& wanted);
  // Runs `fetch` on a thread of its own.
  void Run(Fetch* slot, const std::string& key,
           std::function<PrefetchCore::Result(package::Cancellation*)> fetch);
  void OnDone(Fetch* slot, const std::string& key, PrefetchCore::Result result);
  // ResourceExhausted: the disk has no space for prefetches.
  Status CheckRoom() const;
  void Report();

  const PrepareOptions* const options_;
  const std::string dir_;
  EventLoop* const loop_;
  Containers* const containers_;
  const std::function<bool()> busy_;
  const std::function<void(const std::vector<Prefetched>&)> report_;
  PrefetchCore core_;
  // Leases of packages that waiting jobs will need, by digest.
  std::map<std::string, package::PackageCache::Lease> leases_;
  Fetch image_;
  Fetch package_;
  uint64_t timer_ = 0;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_NODE_PREFETCHER_H_
