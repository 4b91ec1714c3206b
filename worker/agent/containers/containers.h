// The container engine of this node, the fetches of its images, and the
// containers without a rank.
//
// Belongs to the event loop's thread; a thread of its own waits for the engine.
#ifndef LOCKSTEP_WORKER_AGENT_CONTAINERS_CONTAINERS_H_
#define LOCKSTEP_WORKER_AGENT_CONTAINERS_CONTAINERS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/loop/work_thread.h"
#include "worker/container/container_engine.h"
#include "worker/container/image_fetcher.h"
#include "worker/task/task_record.h"

namespace lockstep::worker::agent {

class Containers {
 public:
  // `setup` and `loop` are borrowed. Repeats the sweep after `sweep_every`
  // while a container cannot be removed. `is_held` returns whether a rank of
  // this node may hold the container of that name.
  Containers(const DaemonSetup* setup, EventLoop* loop, Duration sweep_every,
             std::function<bool(const std::string& container)> is_held);

  void SetEngine(std::shared_ptr<container::ContainerEngine> engine) {
    engine_ = std::move(engine);
  }
  // Null: this node runs no containers.
  const std::shared_ptr<container::ContainerEngine>& engine() const {
    return engine_;
  }
  // Safe from any thread, as long as this lives.
  container::ImageFetcher* images() { return &images_; }

  // Removes the containers of this daemon without a rank; repeats later while
  // one is left.
  void Sweep();
  void SweepLater();
  // Removes the container of `record`, then calls `done` on the loop. If the
  // removal fails, Sweep retries it.
  void Remove(const task::TaskRecord& record, std::function<void()> done);

 private:
  // Maps the name of a container to its engine's program.
  using Dead = std::map<std::string, std::string>;

  void RemoveDead(const std::vector<container::FoundContainer>& found);
  void RemoveNext(const std::shared_ptr<Dead>& dead);
  void TryRemoval(const std::string& name, const std::string& program,
                  std::function<void(const Status&)> done);

  const DaemonSetup* const setup_;
  EventLoop* const loop_;
  const Duration sweep_every_;
  const std::function<bool(const std::string&)> is_held_;
  std::shared_ptr<container::ContainerEngine> engine_;
  container::ImageFetcher images_;
  Dead left_;  // Could not be removed.
  bool sweeping_ = false;
  bool sweep_is_due_ = false;
  Lifetime lifetime_;
  WorkThread thread_;  // Last: its jobs use the others.
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CONTAINERS_CONTAINERS_H_
