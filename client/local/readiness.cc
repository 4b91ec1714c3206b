// LocalCluster: waiting until all serve.
#include <fmt/format.h>

#include <map>
#include <thread>

#include "client/local/daemon.h"
#include "client/local/local_cluster.h"
#include "common/base/file.h"

namespace lockstep {
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

// Registered and heard of; a drain is an operator's wish, and lasts.
bool Serves(const v1::Node& node) {
  return node.state() == v1::NODE_STATE_READY ||
         node.state() == v1::NODE_STATE_DRAINING ||
         node.state() == v1::NODE_STATE_DRAINED;
}

// The person who starts the cluster chooses each time what its workers have.
Status ApproveAll(Client* client) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto nodes, client->ListNodes());
  for (const v1::Node& node : nodes) {
    if (!node.has_offered()) continue;
    LOCKSTEP_RETURN_IF_ERROR(client->ApproveNode(node.name()).status());
  }
  return OkStatus();
}

}  // namespace

Status LocalCluster::CheckAlive(const std::string& daemon) const {
  if (OpenDaemon(daemon).ok()) return OkStatus();
  return Unavailable("{} has exited; {}", daemon, LogSentence(layout_, daemon));
}

Status LocalCluster::CheckReady(Client* client) const {
  for (const std::string& daemon : DaemonNames()) {
    // What an earlier process of it wrote says nothing about this one.
    if (EndpointPid(layout_, daemon) != Pid(daemon)) {
      return Unavailable("{} does not serve yet; {}", daemon,
                         LogSentence(layout_, daemon));
    }
  }
  const auto nodes = client->ListNodes();
  if (!nodes.ok()) {
    return Unavailable("{} does not answer: {}; {}", kCoordinator,
                       Message(nodes.status()),
                       LogSentence(layout_, kCoordinator));
  }
  std::map<std::string, const v1::Node*> by_name;
  for (const v1::Node& node : *nodes) by_name[node.name()] = &node;
  for (const WorkerRecord& worker : record_.workers) {
    const auto node = by_name.find(worker.name);
    if (node == by_name.end() || !Serves(*node->second)) {
      return Unavailable("{} is not registered; {}", worker.name,
                         LogSentence(layout_, worker.name));
    }
  }
  return OkStatus();
}

Status LocalCluster::WaitReady() {
  const SystemClock clock;
  const MonoTime deadline = clock.Now().mono + options_.ready_timeout;
  ClientOptions client_options = this->client_options();
  client_options.timeout = kReadyCallTimeout;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, Client::Connect(client_options));
  while (true) {
    for (const std::string& daemon : DaemonNames()) {
      LOCKSTEP_RETURN_IF_ERROR(CheckAlive(daemon));
    }
    const Status ready = CheckReady(client.get());
    if (ready.ok()) return ApproveAll(client.get());
    if (options_.stopped && options_.stopped()) {
      return Cancelled("stopped while the cluster was started");
    }
    if (clock.Now().mono >= deadline) {
      return Annotate(ready,
                      fmt::format("the cluster is not ready after {}",
                                  FormatDuration(options_.ready_timeout)));
    }
    std::this_thread::sleep_for(kReadyPoll);
  }
}

}  // namespace lockstep
