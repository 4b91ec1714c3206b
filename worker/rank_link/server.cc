#include "worker/rank_link/server.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/logging.h"
#include "worker/rank_link/packet.h"
#include "worker/rank_link/protocol.h"
#include "worker/rank_link/text.h"
#include "worker/task/same_secret.h"

namespace lockstep::worker::rank_link {
namespace {

// So that one chatty rank does not starve the others.
constexpr int kPacketsPerTurn = 64;

// A forked child may keep the connection of an ended process open.
bool HasEnded(const RankConnection& c) {
  pollfd seen[2] = {{c.fd.get(), POLLRDHUP, 0}, {c.process.get(), POLLIN, 0}};
  return ::poll(seen, c.process ? 2 : 1, 0) > 0;
}

Fd OpenProcess(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool IsRendezvousKey(const std::string& key) {
  return !key.empty() && key.size() <= kMaxRendezvousKey;
}

}  // namespace

struct RankLinkServer::Expected {
  std::string nonce;
  uid_t uid = 0;
  v1::RankWelcome welcome;
  uint64_t connection = 0;  // 0: none.
  std::string instance;     // Of the connection's Hello.
  bool go = false;
  std::optional<v1::RankAbort> abort;
  std::map<uint32_t, v1::RankDirective> directives;  // Not done; by id.
};

StatusOr<std::unique_ptr<RankLinkServer>> RankLinkServer::Listen(
    const std::string& path, RankLinkHandler* handler) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<RankConnections> connections,
                            RankConnections::Listen(path));
  return std::unique_ptr<RankLinkServer>(
      new RankLinkServer(handler, std::move(connections)));
}

RankLinkServer::RankLinkServer(RankLinkHandler* handler,
                               std::unique_ptr<RankConnections> connections)
    : handler_(handler), connections_(std::move(connections)) {}

RankLinkServer::~RankLinkServer() = default;

void RankLinkServer::Dispatch() {
  const auto has_rank = [this](uid_t user) {
    return std::any_of(expected_.begin(), expected_.end(),
                       [&](const auto& e) { return e.second->uid == user; });
  };
  connections_->Dispatch(has_rank, [this](uint64_t id) { Read(id); });
  Sweep();
}

void RankLinkServer::Sweep() {
  for (const auto& ended : connections_->Sweep()) {
    if (!ended->key) continue;
    const RankKey key = *ended->key;
    ended->fd.Reset();
    auto expected = expected_.find(key);
    if (expected == expected_.end() ||
        expected->second->connection != ended->id) {
      continue;
    }
    expected->second->connection = 0;
    handler_->OnDisconnect(key);
  }
  connections_->Arm();
}

void RankLinkServer::Read(uint64_t id) {
  std::string packet;
  for (int i = 0; i < kPacketsPerTurn; ++i) {
    RankConnection* c = connections_->Find(id);
    if (c == nullptr) return;
    const PacketResult result = ReceivePacket(c->fd.get(), &packet);
    if (result == PacketResult::kWouldBlock) return;
    v1::RankMessage message;
    if (result == PacketResult::kDone && message.ParseFromString(packet) &&
        OnMessage(c, message)) {
      continue;
    }
    // The handler may have forgotten the rank.
    c = connections_->Find(id);
    if (c == nullptr) return;
    if (result != PacketResult::kClosed) {
      LOG_WARN("rank link: a bad packet from pid {} uid {}{}", c->peer.pid,
               c->peer.uid, c->key ? ", " + Describe(*c->key) : "");
    }
    c->closing = true;
    return;
  }
}

// False: the connection ends. `c` may be gone after a call of the handler.
bool RankLinkServer::OnMessage(RankConnection* c,
                               const v1::RankMessage& message) {
  using Case = v1::RankMessage::MessageCase;
  const Case kind = message.message_case();
  if (!c->key) return kind == Case::kHello && OnHello(c, message.hello());
  const RankKey key = *c->key;
  switch (kind) {
    case Case::kPut:
      if (!IsRendezvousKey(message.put().key()) ||
          message.put().value().size() > kMaxRendezvousValue) {
        return false;
      }
      handler_->OnPut(key, message.put().key(), message.put().value());
      return true;
    case Case::kGet:
      if (!IsRendezvousKey(message.get().key())) return false;
      handler_->OnGet(key, message.get().key());
      return true;
    case Case::kJoined:
      handler_->OnJoined(key, message.joined());
      return true;
    case Case::kReport:
      ForgetDirectives(key, message.report().directive_done());
      handler_->OnReport(key, message.report());
      return true;
    case Case::kHello:
    case Case::MESSAGE_NOT_SET:
      break;
  }
  return false;
}

bool RankLinkServer::OnHello(RankConnection* c, const v1::RankHello& hello) {
  const RankKey key{hello.job(), hello.generation(), hello.rank()};
  auto it = expected_.find(key);
  if (it == expected_.end()) {
    Refuse(c, "this node does not run " + Describe(key));
    return true;
  }
  Expected* expected = it->second.get();
  if (!task::SameSecret(expected->nonce, hello.nonce()) ||
      expected->uid != c->peer.uid) {
    LOG_WARN("rank link: pid {} uid {} is not {}", c->peer.pid, c->peer.uid,
             Describe(key));
    Refuse(c, "wrong nonce or user for " + Describe(key));
    return true;
  }
  if (const Status understood = CheckProtocol(hello); !understood.ok()) {
    LOG_WARN("rank link: {} is refused: {}", Describe(key),
             Message(understood));
    Refuse(c, std::string(Message(understood)));
    return true;
  }
  if (RankConnection* old = connections_->Find(expected->connection)) {
    if (expected->welcome.program() && expected->instance != hello.instance() &&
        !HasEnded(*old)) {
      Refuse(c,
             fmt::format("process {} has joined as {}: one process of a rank "
                         "may join at a time",
                         old->peer.pid, Describe(key)),
             /*taken=*/true);
      return true;
    }
    old->key.reset();  // No OnDisconnect: the rank is here.
    old->closing = true;
  }
  expected->connection = c->id;
  expected->instance = hello.instance();
  if (expected->welcome.program()) c->process = OpenProcess(c->peer.pid);
  c->key = key;
  v1::DaemonMessage message;
  *message.mutable_welcome() = expected->welcome;
  connections_->Send(c, message.SerializeAsString());
  if (expected->go) {
    message.mutable_go();
    connections_->Send(c, message.SerializeAsString());
  }
  for (const auto& [id, directive] : expected->directives) {
    *message.mutable_directive() = directive;
    connections_->Send(c, message.SerializeAsString());
  }
  if (expected->abort) {
    *message.mutable_abort() = *expected->abort;
    connections_->Send(c, message.SerializeAsString());
  }
  handler_->OnHello(key);
  return true;
}

// Those up to `done`. A stop is done when the rank has ended.
void RankLinkServer::ForgetDirectives(const RankKey& key, uint32_t done) {
  const auto it = expected_.find(key);
  if (done == 0 || it == expected_.end()) return;
  std::erase_if(it->second->directives, [&](const auto& entry) {
    return entry.first <= done &&
           entry.second.kind() != v1::RankDirective::STOP;
  });
}

void RankLinkServer::Refuse(RankConnection* c, const std::string& text,
                            bool taken) {
  v1::DaemonMessage message;
  message.mutable_refusal()->set_message(CleanText(text));
  message.mutable_refusal()->set_taken(taken);
  connections_->Send(c, message.SerializeAsString());
  c->closing = true;
}

void RankLinkServer::Expect(const RankKey& key, const std::string& nonce,
                            uid_t uid, const v1::RankWelcome& welcome) {
  std::unique_ptr<Expected>& expected = expected_[key];
  if (!expected) expected = std::make_unique<Expected>();
  const bool recovers = welcome.recovery() > expected->welcome.recovery();
  expected->nonce = nonce;
  expected->uid = uid;
  expected->welcome = welcome;
  RankConnection* const c = connections_->Find(expected->connection);
  if (!recovers || c == nullptr) return;
  v1::DaemonMessage message;
  *message.mutable_welcome() = welcome;
  connections_->Send(c, message.SerializeAsString());
}

void RankLinkServer::Forget(const RankKey& key) {
  auto it = expected_.find(key);
  if (it == expected_.end()) return;
  if (RankConnection* c = connections_->Find(it->second->connection)) {
    c->key.reset();
    connections_->MarkForClose(c);
  }
  expected_.erase(it);
}

bool RankLinkServer::Send(const RankKey& key,
                          const v1::DaemonMessage& message) {
  auto it = expected_.find(key);
  if (it == expected_.end()) return false;
  Expected* expected = it->second.get();
  if (message.has_go()) expected->go = true;
  if (message.has_abort()) expected->abort = message.abort();
  if (message.has_directive()) {
    expected->directives[message.directive().id()] = message.directive();
  }
  if (RankConnection* c = connections_->Find(expected->connection)) {
    connections_->Send(c, message.SerializeAsString());
  }
  return true;
}

bool RankLinkServer::SendValue(const RankKey& key, const std::string& name,
                               const std::string& value) {
  v1::DaemonMessage message;
  message.mutable_value()->set_key(name);
  message.mutable_value()->set_value(value);
  return Send(key, message);
}

bool RankLinkServer::SendGo(const RankKey& key) {
  v1::DaemonMessage message;
  message.mutable_go();
  return Send(key, message);
}

bool RankLinkServer::SendAbort(const RankKey& key, const std::string& text) {
  v1::DaemonMessage message;
  message.mutable_abort()->set_message(CleanText(text));
  return Send(key, message);
}

bool RankLinkServer::SendDirective(const RankKey& key, uint32_t id,
                                   v1::RankDirective::Kind kind) {
  v1::DaemonMessage message;
  message.mutable_directive()->set_id(id);
  message.mutable_directive()->set_kind(kind);
  return Send(key, message);
}

bool RankLinkServer::connected(const RankKey& key) const {
  return Connected(key) != nullptr;
}

pid_t RankLinkServer::pid(const RankKey& key) const {
  const RankConnection* c = Connected(key);
  return c == nullptr ? 0 : c->peer.pid;
}

const RankConnection* RankLinkServer::Connected(const RankKey& key) const {
  auto it = expected_.find(key);
  if (it == expected_.end()) return nullptr;
  const RankConnection* c = connections_->Find(it->second->connection);
  if (c == nullptr || (it->second->welcome.program() && HasEnded(*c))) {
    return nullptr;
  }
  return c;
}

}  // namespace lockstep::worker::rank_link
