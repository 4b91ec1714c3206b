#include "server/service/evidence_desk.h"

#include <utility>

#include "common/base/status.h"

namespace lockstep::server {

EvidenceDesk::EvidenceDesk(EvidenceDeskOptions options)
    : options_(options),
      limiter_("collections of evidence", options.collections) {}

EvidenceDesk::Connection EvidenceDesk::Connect(
    const NodeName& node, std::function<void(const EvidenceQuery&)> send) {
  MutexLock lock(&mu_);
  const Connection connection = next_++;
  peers_[connection] = {node, std::move(send)};
  nodes_[node] = connection;
  return connection;
}

void EvidenceDesk::End(Collection* collection, uint64_t id) {
  collection->desk_->mu_.AssertHeld();
  collection->pending_.erase(id);
  collections_.erase(id);
  if (collection->pending_.empty()) collection->peer_->Wake();
}

void EvidenceDesk::Disconnect(Connection connection) {
  MutexLock lock(&mu_);
  const auto peer = peers_.find(connection);
  if (peer == peers_.end()) return;
  const NodeName node = peer->second.node;
  peers_.erase(peer);
  if (const auto it = nodes_.find(node);
      it != nodes_.end() && it->second == connection) {
    nodes_.erase(it);
  }
  const std::map<uint64_t, Collection*> collections = collections_;
  for (const auto& [id, collection] : collections) {
    collection->desk_->mu_.AssertHeld();
    if (collection->pending_.at(id).connection != connection) continue;
    collection->collected_.notes.push_back(
        fmt::format("node {}: its connection broke meanwhile", node));
    End(collection, id);
  }
}

void EvidenceDesk::OnAnswer(Connection connection, EvidenceAnswer answer) {
  MutexLock lock(&mu_);
  const auto it = collections_.find(answer.id);
  if (it == collections_.end()) return;
  Collection* const collection = it->second;
  collection->desk_->mu_.AssertHeld();
  const Collection::Pending pending = collection->pending_.at(answer.id);
  if (pending.connection != connection) return;
  if (!answer.status.ok()) {
    collection->collected_.notes.push_back(
        fmt::format("node {}: {}", pending.node, Message(answer.status)));
  }
  if (answer.evidence) {
    // A daemon speaks for its own node only.
    answer.evidence->node = pending.node;
    collection->collected_.ranks.push_back(*std::move(answer.evidence));
  }
  if (answer.last || !answer.status.ok()) End(collection, answer.id);
}

EvidenceDesk::Collection::Collection(
    EvidenceDesk* desk, const std::map<NodeName, EvidenceQuery>& to,
    StreamPeer* peer)
    : desk_(desk),
      peer_(peer),
      deadline_(MonotonicNow() + desk->options_.within +
                desk->options_.reserve) {
  std::vector<
      std::pair<std::function<void(const EvidenceQuery&)>, EvidenceQuery>>
      sends;
  {
    MutexLock lock(&desk_->mu_);
    for (const auto& [node, query] : to) {
      const auto found = desk_->nodes_.find(node);
      if (found == desk_->nodes_.end()) {
        collected_.notes.push_back(fmt::format("node {} is silent", node));
        continue;
      }
      EvidenceQuery sent = query;
      sent.id = desk_->next_++;
      sent.within = desk_->options_.within;
      pending_[sent.id] = {node, found->second};
      desk_->collections_[sent.id] = this;
      sends.emplace_back(desk_->peers_.at(found->second).send, std::move(sent));
    }
  }
  for (const auto& [send, query] : sends) send(query);
}

EvidenceDesk::Collection::~Collection() {
  MutexLock lock(&desk_->mu_);
  for (const auto& [id, pending] : pending_) desk_->collections_.erase(id);
}

bool EvidenceDesk::Collection::Done() const {
  MutexLock lock(&desk_->mu_);
  return pending_.empty() || MonotonicNow() >= deadline_;
}

EvidenceDesk::Collected EvidenceDesk::Collection::Take() {
  MutexLock lock(&desk_->mu_);
  for (const auto& [id, pending] : pending_) {
    collected_.notes.push_back(fmt::format(
        "node {} did not answer within {}: it is overloaded, or its worker "
        "daemon is older than this coordinator",
        pending.node,
        FormatDuration(desk_->options_.within + desk_->options_.reserve)));
  }
  return std::move(collected_);
}

}  // namespace lockstep::server
