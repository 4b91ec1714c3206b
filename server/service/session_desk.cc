#include "server/service/session_desk.h"

#include <utility>

#include "common/base/random.h"

namespace lockstep::server {
namespace {

size_t CountOf(const std::map<std::string, size_t>& counts,
               const std::string& name) {
  const auto it = counts.find(name);
  return it == counts.end() ? 0 : it->second;
}

void Decrease(std::map<std::string, size_t>* counts, const std::string& name) {
  const auto it = counts->find(name);
  if (--it->second == 0) counts->erase(it);
}

size_t Index(SessionKind kind) { return static_cast<size_t>(kind); }
size_t Index(SessionResult result) { return static_cast<size_t>(result); }

Status TooMany(std::string_view whose, size_t most) {
  return WithReason(
      ResourceExhausted("{} has {} open sessions, which is the limit: end one "
                        "first",
                        whose, most),
      "TOO_MANY_SESSIONS");
}

}  // namespace

std::string_view Name(SessionKind kind) {
  switch (kind) {
    case SessionKind::kCommand:
      return "command";
    case SessionKind::kTerminal:
      return "terminal";
    case SessionKind::kPort:
      return "port";
    case SessionKind::kProfile:
      return "profile";
  }
  return "unknown";
}

std::string_view Name(SessionResult result) {
  switch (result) {
    case SessionResult::kEnded:
      return "ended";
    case SessionResult::kClient:
      return "client_gone";
    case SessionResult::kRefused:
      return "refused";
    case SessionResult::kBroken:
      return "broken";
  }
  return "unknown";
}

SessionKind KindOf(const SessionRequest& request) {
  if (request.port) return SessionKind::kPort;
  if (request.profile) return SessionKind::kProfile;
  return request.command && request.command->terminal ? SessionKind::kTerminal
                                                      : SessionKind::kCommand;
}

SessionDesk::Connection SessionDesk::Connect(
    const NodeName& node, std::function<void(const SessionOrder&)> send) {
  MutexLock lock(&mu_);
  const Connection connection = next_++;
  peers_[connection] = {node, std::move(send)};
  nodes_[node] = connection;
  return connection;
}

void SessionDesk::Disconnect(Connection connection) {
  MutexLock lock(&mu_);
  const auto peer = peers_.find(connection);
  if (peer == peers_.end()) return;
  if (const auto it = nodes_.find(peer->second.node);
      it != nodes_.end() && it->second == connection) {
    nodes_.erase(it);
  }
  peers_.erase(peer);
}

Status SessionDesk::CheckLimits(const Place& place) const {
  if (CountOf(of_job_, place.job_uid) >= options_.of_job) {
    return TooMany("the job", options_.of_job);
  }
  if (CountOf(of_user_, place.user) >= options_.of_user) {
    return TooMany(place.user, options_.of_user);
  }
  if (CountOf(of_node_, place.node) >= options_.of_node) {
    return TooMany("node " + place.node, options_.of_node);
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<SessionDesk::Ticket>> SessionDesk::Open(
    SessionOrder order, Place place,
    const std::shared_ptr<SessionSplice>& splice) {
  MutexLock lock(&mu_);
  const auto connection = nodes_.find(place.node);
  if (connection == nodes_.end()) {
    return WithReason(
        Unavailable("node {} is silent: its worker daemon is not connected",
                    place.node),
        "NODE_SILENT");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckLimits(place));
  do {
    order.id = RandomUint64();
  } while (order.id == 0 || waiting_.contains(order.id));
  const SessionKind kind = KindOf(order.request);
  ++of_job_[place.job_uid];
  ++of_user_[place.user];
  ++of_node_[place.node];
  ++counts_.open[Index(kind)];
  waiting_[order.id] = {place.node, splice};
  peers_.at(connection->second).send(order);
  return std::unique_ptr<Ticket>(
      new Ticket(this, order.id, kind, std::move(place)));
}

StatusOr<std::shared_ptr<SessionSplice>> SessionDesk::Take(
    uint64_t id, const pki::Identity& node) {
  MutexLock lock(&mu_);
  const auto it = waiting_.find(id);
  if (it != waiting_.end() && !node.SpeaksForNode(it->second.node)) {
    return PermissionDenied("{} may not serve a session of node {}",
                            Describe(node), it->second.node);
  }
  std::shared_ptr<SessionSplice> splice;
  if (it != waiting_.end()) {
    splice = it->second.splice.lock();
    waiting_.erase(it);
  }
  if (splice == nullptr) {
    return NotFound("no such session waits: its client is gone");
  }
  return splice;
}

SessionDesk::Ticket::~Ticket() { desk_->End(*this); }

void SessionDesk::End(const Ticket& ticket) {
  MutexLock lock(&mu_);
  waiting_.erase(ticket.id_);
  Decrease(&of_job_, ticket.place_.job_uid);
  Decrease(&of_user_, ticket.place_.user);
  Decrease(&of_node_, ticket.place_.node);
  --counts_.open[Index(ticket.kind_)];
  ++counts_.ended[Index(ticket.kind_)][Index(ticket.result_)];
}

void SessionDesk::CountRefused(SessionKind kind) {
  MutexLock lock(&mu_);
  ++counts_.ended[Index(kind)][Index(SessionResult::kRefused)];
}

SessionCounts SessionDesk::Counts() const {
  MutexLock lock(&mu_);
  return counts_;
}

std::vector<SessionFigures> SessionDesk::Figures() const {
  const SessionCounts counts = Counts();
  std::vector<SessionFigures> figures;
  for (size_t kind = 0; kind < kSessionKinds; ++kind) {
    SessionFigures of;
    of.kind = Name(static_cast<SessionKind>(kind));
    of.open = counts.open[kind];
    for (size_t result = 0; result < kSessionResults; ++result) {
      of.ended.emplace_back(Name(static_cast<SessionResult>(result)),
                            counts.ended[kind][result]);
    }
    figures.push_back(std::move(of));
  }
  return figures;
}

}  // namespace lockstep::server
