#include "server/service/work_files.h"

#include <utility>

namespace lockstep::server {

WorkFiles::WorkFiles(WorkFilesOptions options)
    : options_(options), limiter_("reads of files", options.reads) {}

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
  for (const auto& [id, question] : questions_) {
    question->files_->mu_.AssertHeld();
    if (question->connection_ != connection) continue;
    question->lost_ = true;
    question->peer_->Wake();
  }
  peers_.erase(peer);
}

void WorkFiles::OnAnswer(Connection connection, FileAnswer answer) {
  MutexLock lock(&mu_);
  const auto it = questions_.find(answer.id);
  // Unexpected answers are dropped.
  if (it == questions_.end()) return;
  Question* const question = it->second;
  question->files_->mu_.AssertHeld();
  if (question->connection_ != connection) return;
  question->answer_ = std::move(answer);
  question->peer_->Wake();
}

StatusOr<std::function<void(const FileQuery&)>> WorkFiles::Begin(
    Question* question) {
  MutexLock lock(&mu_);
  question->files_->mu_.AssertHeld();
  const NodeName& node = question->node_;
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) {
    return WithReason(
        Unavailable("node {}, which has the files, is silent: retry when "
                    "it returns",
                    node),
        "NODE_SILENT");
  }
  Peer& peer = peers_.at(found->second);
  if (peer.waiting >= options_.of_node) {
    return WithReason(
        Unavailable("node {} has {} pending file queries already: retry in a "
                    "moment",
                    node, peer.waiting),
        "BUSY");
  }
  ++peer.waiting;
  question->id_ = next_++;
  question->connection_ = found->second;
  questions_[question->id_] = question;
  return peer.send;
}

WorkFiles::Question::Question(WorkFiles* files, const NodeName& node,
                              FileQuery query, StreamPeer* peer)
    : files_(files),
      node_(node),
      peer_(peer),
      deadline_(MonotonicNow() + files->options_.patience) {
  const auto send = files_->Begin(this);
  status_ = send.status();
  if (!send.ok()) return;
  query.id = id_;
  (*send)(query);
}

WorkFiles::Question::~Question() {
  if (id_ == 0) return;
  MutexLock lock(&files_->mu_);
  files_->questions_.erase(id_);
  const auto peer = files_->peers_.find(connection_);
  if (peer != files_->peers_.end()) --peer->second.waiting;
}

StatusOr<std::optional<FileAnswer>> WorkFiles::Question::Take() {
  if (!status_.ok()) return status_;
  MutexLock lock(&files_->mu_);
  if (answer_) {
    if (!answer_->status.ok()) {
      return Annotate(answer_->status, "node " + node_);
    }
    return std::move(answer_);
  }
  if (lost_) {
    return WithReason(
        Unavailable("the connection to node {} broke: retry", node_),
        "NODE_SILENT");
  }
  if (MonotonicNow() < deadline_) {
    return std::optional<FileAnswer>();
  }
  return DeadlineExceeded(
      "node {} did not answer within {}: its disk may be slow, or its worker "
      "daemon is older than this coordinator",
      node_, FormatDuration(files_->options_.patience));
}

}  // namespace lockstep::server
