// The worker daemon: moves this node towards the state that the coordinator
// wants.
//
// AgentCore decides. This class connects the owners of everything else and
// passes decisions and messages to them:
//
//   stream/      the coordinator: stream, heartbeats, logs, requests
//   prepare/     prepares gangs, prefetches
//   ranks/       starts ranks and finds them again; with link/, exits/,
//                readings/, ports/ and evidence/
//   containers/  the container engine
//   work/        working directories
//   store/       state for the next daemon
//
// Everything runs on the event loop's thread; blocking work runs on a
// WorkThread and returns by Post. Ranks outlive this object.
#ifndef LOCKSTEP_WORKER_AGENT_AGENT_H_
#define LOCKSTEP_WORKER_AGENT_AGENT_H_

#include <functional>
#include <memory>
#include <string>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/node.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/agent_sampler.h"
#include "worker/agent/containers/containers.h"
#include "worker/agent/gang_reports.h"
#include "worker/agent/host/cgroup_tree.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/prepare/gang_preparer.h"
#include "worker/agent/prepare/node_prefetcher.h"
#include "worker/agent/prepare/prepare_options.h"
#include "worker/agent/ranks/ranks.h"
#include "worker/agent/store/removal.h"
#include "worker/agent/store/task_store.h"
#include "worker/agent/stream/coordinator_stream.h"
#include "worker/agent/stream/requests.h"
#include "worker/agent/work/work_directories.h"
#include "worker/devices/gpu_sampler.h"

namespace lockstep::worker::agent {

struct AgentConfig {
  DaemonSetup daemon;
  RankOptions ranks;
  PrepareOptions prepare;
  StreamOptions stream;
  // Period of retries while containers cannot be removed.
  Duration container_sweep_every = std::chrono::seconds(30);
  // Borrowed. Null: ranks share the daemon's own cgroup, without limits.
  CgroupTree* cgroups = nullptr;
  // Whether users may enter ranks.
  bool allow_sessions = true;
  // The path of lockstep-gpu-check; empty: GPUs are not checked.
  std::string gpu_check;
};

class Agent final : public StreamHandler {
 public:
  // All pointers are borrowed; `gpus` may be null. InvalidArgument when
  // the runtime directory is too long for the sockets in it.
  static StatusOr<std::unique_ptr<Agent>> Create(
      AgentConfig config, EventLoop* loop, FileSystem* files,
      const devices::GpuSampler* gpus);

  // Ends preparations and fetches first: the other owners may wait for a file
  // system that hangs.
  ~Agent() override;

  // Create the client with these; its events are posted to the loop.
  CoordinatorClient::Events ClientEvents() { return stream_.ClientEvents(); }
  // Sets the port for reachability tests by other hosts. Call it before Start.
  void SetProbeListener(std::unique_ptr<ProbeListener> listener) {
    requests_.SetProbeListener(std::move(listener));
  }
  // Sets the way of sessions' calls. Call it before Start; without it orders of
  // sessions are not answered.
  void SetSessionClient(std::unique_ptr<SessionClient> client) {
    requests_.sessions()->SetClient(std::move(client));
  }
  // Sets the address of /metrics. Call it before Start.
  void SetHttpAddress(const std::string& address, bool tls) {
    config_.daemon.node.http_address = address;
    config_.daemon.node.http_tls = tls;
  }
  // Recovers the ranks of an earlier daemon, then connects through `client`,
  // which is borrowed. The loop must run afterwards.
  Status Start(CoordinatorClient* client);
  // Sets the container engine once it is known, and registers again if the
  // coordinator knows of none. Call it on the loop's thread or before Start.
  void SetContainerEngine(std::shared_ptr<container::ContainerEngine> engine);

  // Returns why the agent stopped the loop, or OK. ABORTED: another daemon has
  // registered as this node.
  const Status& fatal() const { return stream_.fatal(); }
  // CoordinatorStream::Ready. From any thread.
  Status Ready() const { return stream_.Ready(); }
  std::shared_ptr<AgentMetrics> metrics() { return sampler_.metrics(); }
  const AgentCore& core() const { return core_.core(); }

  // StreamHandler.
  void FillRegistration(Registration* registration) override;
  void OnWelcome(bool other_epoch) override;
  void OnMessage(uint64_t stream,
                 const v1::CoordinatorMessage& message) override;
  void OnContact(int64_t sent) override {
    ranks_.fences()->OnCoordinator(sent);
  }
  void OnReplaced(bool cloned) override;

 private:
  Agent(AgentConfig config, EventLoop* loop, FileSystem* files,
        const devices::GpuSampler* gpus);
  RankHooks HooksOfRanks();

  // Executes the core's decisions.
  void Execute(const Actions& actions);
  void OnAssignment(const Assignment& assignment);
  void Capture(const GangKey& key, uint32_t evidence);
  void Forget(const GangKey& key);
  void RemoveForgotten();
  // Runs a few times a second, in addition to the work that events cause.
  void Tick();
  // Kills all ranks and preparations of this node, without grace.
  void StopAll();
  // Ends the loop once nothing runs here, or at `deadline`.
  void LeaveWhenOver(MonoTime deadline);

  AgentConfig config_;
  EventLoop* const loop_;
  CoreRunner core_;
  TaskStore store_;
  Removal removal_;
  WorkDirectories work_;
  Containers containers_;
  Ranks ranks_;
  GangPreparer preparer_;
  NodePrefetcher prefetcher_;
  GangReports reports_;
  Requests requests_;
  AgentSampler sampler_;
  CoordinatorStream stream_;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_AGENT_H_
