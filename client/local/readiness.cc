#include "client/local/readiness.h"

#include <fmt/format.h>

#include <map>
#include <thread>

#include "client/local/daemon.h"

namespace lockstep::cli {
namespace {

constexpr Duration kReadyPoll = std::chrono::milliseconds(50);
constexpr Duration kReadyCallTimeout = std::chrono::seconds(2);

std::string LogSentence(const LocalLayout& layout, const std::string& daemon) {
  const std::string line = LastLogLine(layout, daemon);
  if (line.empty())
    return fmt::format("its log {} is empty", layout.Log(daemon));
  return fmt::format("the last line of its log {} is: {}", layout.Log(daemon),
                     line);
}

// The node is registered and alive. A drain is an operator's order and stays.
bool Serves(const v1::Node& node) {
  return node.state() == v1::NODE_STATE_READY ||
         node.state() == v1::NODE_STATE_DRAINING ||
         node.state() == v1::NODE_STATE_DRAINED;
}

// The user who starts the cluster chooses the workers' resources each time.
Status ApproveAll(Client* client) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto nodes, client->ListNodes());
  for (const v1::Node& node : nodes) {
    if (!node.has_offered()) continue;
    LOCKSTEP_RETURN_IF_ERROR(client->ApproveNode(node.name()).status());
  }
  return OkStatus();
}

Status CheckAlive(const LocalCluster& cluster, const std::string& daemon) {
  if (cluster.Pid(daemon) != 0) return OkStatus();
  return Unavailable("{} has exited; {}", daemon,
                     LogSentence(cluster.layout(), daemon));
}

// Returns the first error if a daemon is not ready.
Status CheckReady(const LocalCluster& cluster, Client* client) {
  const LocalLayout& layout = cluster.layout();
  for (const std::string& daemon : DaemonNames(cluster.record())) {
    // The endpoint file may be from an earlier process.
    if (EndpointPid(layout, daemon) != cluster.Pid(daemon)) {
      return Unavailable("{} does not serve yet; {}", daemon,
                         LogSentence(layout, daemon));
    }
  }
  const auto nodes = client->ListNodes();
  if (!nodes.ok()) {
    return Unavailable("{} does not answer: {}; {}", kCoordinator,
                       Message(nodes.status()),
                       LogSentence(layout, kCoordinator));
  }
  std::map<std::string, const v1::Node*> by_name;
  for (const v1::Node& node : *nodes) by_name[node.name()] = &node;
  for (const WorkerRecord& worker : cluster.record().workers) {
    const auto node = by_name.find(worker.name);
    if (node == by_name.end() || !Serves(*node->second)) {
      return Unavailable("{} is not registered; {}", worker.name,
                         LogSentence(layout, worker.name));
    }
  }
  return OkStatus();
}

}  // namespace

Status WaitUntilReady(const LocalCluster& cluster, Duration timeout,
                      const std::function<bool()>& stopped) {
  const SystemClock clock;
  const MonoTime deadline = clock.Now().mono + timeout;
  ClientOptions client_options = cluster.client_options();
  client_options.timeout = kReadyCallTimeout;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, Client::Connect(client_options));
  while (true) {
    for (const std::string& daemon : DaemonNames(cluster.record())) {
      LOCKSTEP_RETURN_IF_ERROR(CheckAlive(cluster, daemon));
    }
    const Status ready = CheckReady(cluster, client.get());
    if (ready.ok()) return ApproveAll(client.get());
    if (stopped && stopped()) {
      return Cancelled("stopped while the cluster was started");
    }
    if (clock.Now().mono >= deadline) {
      return Annotate(ready, fmt::format("the cluster is not ready after {}",
                                         FormatDuration(timeout)));
    }
    std::this_thread::sleep_for(kReadyPoll);
  }
}

}  // namespace lockstep::cli
