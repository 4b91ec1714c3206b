#include "server/service/work_files.h"

#include <utility>

namespace lockstep {

WorkFiles::WorkFiles(WorkFilesOptions options)
    : options_(options), turns_("reads of files", options.turns) {}

WorkFiles::Connection WorkFiles::Connect(
    const NodeName& node, std::function<void(const FileQuery&)> send) {
  MutexLock lock(&mu_);
  const Connection connection = next_++;
  peers_[connection] = {node, std::move(send)};
  nodes_[node] = connection;
  return connection;
}

void WorkFiles::Disconnect(Connection connection) {
  MutexLock lock(&mu_);
  const auto peer = peers_.find(connection);
  if (peer == peers_.end()) return;
  if (const auto it = nodes_.find(peer->second.node);
      it != nodes_.end() && it->second == connection) {
    nodes_.erase(it);
  }
  for (auto& [id, question] : questions_) {
    if (question.connection == connection) question.lost = true;
  }
  peers_.erase(peer);
  changed_.NotifyAll();
}

void WorkFiles::OnAnswer(Connection connection, FileAnswer answer) {
  MutexLock lock(&mu_);
  const auto it = questions_.find(answer.id);
  // A node answers what it was asked, and nothing else.
  if (it == questions_.end() || it->second.connection != connection) return;
  it->second.answer = std::move(answer);
  changed_.NotifyAll();
}

StatusOr<WorkFiles::Asked> WorkFiles::Begin(const NodeName& node) {
  MutexLock lock(&mu_);
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) {
    return WithReason(
        Unavailable("node {}, which has the files, is silent: try again when "
                    "it is back",
                    node),
        "NODE_SILENT");
  }
  Peer& peer = peers_.at(found->second);
  if (peer.waiting >= options_.of_node) {
    return WithReason(
        Unavailable("node {} is asked for {} files already: try again in a "
                    "moment",
                    node, peer.waiting),
        "BUSY");
  }
  ++peer.waiting;
  const uint64_t id = next_++;
  questions_[id].connection = found->second;
  return Asked{id, peer.send};
}

StatusOr<FileAnswer> WorkFiles::Await(const NodeName& node, uint64_t id) {
  const MonoTime deadline = SystemClock().Now().mono + options_.patience;
  MutexLock lock(&mu_);
  Question& question = questions_.at(id);
  while (!question.answer && !question.lost) {
    if (!changed_.WaitUntil(&mu_, deadline)) break;
  }
  const Question ended = std::move(question);
  questions_.erase(id);
  if (const auto it = peers_.find(ended.connection); it != peers_.end()) {
    --it->second.waiting;
  }
  if (ended.answer) {
    if (ended.answer->status.ok()) return *ended.answer;
    return Annotate(ended.answer->status, "node " + node);
  }
  if (ended.lost) {
    return WithReason(
        Unavailable("the connection with node {} broke: try again", node),
        "NODE_SILENT");
  }
  return DeadlineExceeded(
      "node {} did not answer within {}: its disk may be slow, or its worker "
      "daemon is older than this coordinator",
      node, FormatDuration(options_.patience));
}

StatusOr<FileAnswer> WorkFiles::Ask(const NodeName& node, FileQuery query) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Asked asked, Begin(node));
  query.id = asked.id;
  asked.send(query);
  return Await(node, asked.id);
}

}  // namespace lockstep
