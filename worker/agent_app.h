// The worker daemon's object graph: everything with a lifetime.
#ifndef LOCKSTEP_WORKER_AGENT_APP_H_
#define LOCKSTEP_WORKER_AGENT_APP_H_

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/http/server.h"
#include "common/os/notify.h"
#include "common/rpc/channel.h"
#include "worker/agent/agent.h"
#include "worker/agent/host/cgroup_tree.h"
#include "worker/agent/stream/package_client.h"
#include "worker/agent_flags.h"
#include "worker/container/engine_search.h"
#include "worker/devices/gpu_sampler.h"
#include "worker/package/package_cache.h"

namespace lockstep::worker {

// Members are destroyed in reverse order.
struct AgentApp {
  Notifier notifier = Notifier::FromEnvironment();
  SystemClock clock;
  Fd signals;
  Fd leave;  // eventfd: readable once a signal came.
  Fd lock;
  std::unique_ptr<agent::CgroupTree> cgroups;
  std::string no_limits;  // Why there are no cgroups.
  std::unique_ptr<agent::EventLoop> loop;
  std::unique_ptr<devices::GpuSampler> gpus;
  std::unique_ptr<package::PackageSource> package_source;
  std::unique_ptr<package::PackageCache> packages;
  std::unique_ptr<agent::Agent> agent;
  std::unique_ptr<agent::CoordinatorClient> client;
  std::unique_ptr<http::HttpServer> http;
  std::unique_ptr<container::EngineSearch> search;

  Status LockDirectory(const std::string& dir);
  Status DescribeNode(const AgentFlags& flags, NodeInfo* node);
  StatusOr<ChannelOptions> Channel(const AgentFlags& flags, std::string* node);
  void OpenCgroups(const AgentFlags& flags);
  void FindEngine(const AgentFlags& flags, const agent::AgentConfig& config);
  void UseEngine(container::EngineSearch::Result found);
  Status ServeHttp(const AgentFlags& flags);
  Status Start(const AgentFlags& flags);
  std::string StatusLine() const;
  void Turn();
  Status Run();
};

}  // namespace lockstep::worker

#endif  // LOCKSTEP_WORKER_AGENT_APP_H_
