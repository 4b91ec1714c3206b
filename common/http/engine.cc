#include "common/http/engine.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "common/base/logging.h"
#include "common/http/engine_parts.h"

namespace lockstep::http {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using Phase = ConnectionPhase;

// Connections accepted before other work gets a turn.
constexpr int kAcceptsAtATime = 32;
// Time before the next accept after the process ran out of descriptors.
constexpr Duration kNoFilesPause = std::chrono::milliseconds(50);

}  // namespace

HttpEngine::Loop::Loop(HttpEngineOptions options)
    : options_(std::move(options)),
      pool_(options_.threads),
      table_(options_.limits) {
  if (options_.tls != nullptr) tls_.emplace(options_.tls.release());
}

HttpEngine::Loop::~Loop() {
  if (thread_.joinable()) {
    Post([this] { Stop(); });
    thread_.join();
  }
  // Handlers may hold the last references to connections.
  pool_.Stop();
}

void HttpEngine::Loop::Start(Fd listener) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  listener_.assign(bound.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(),
                   listener.Release());
  listener_.native_non_blocking(true);
  AwaitNext();
  thread_ = std::thread([this] { Run(); });
}

void HttpEngine::Loop::Run() {
  for (;;) {
    try {
      // The exception may have come before the next accept was started.
      if (!awaits_ && !stopping_) AwaitNext();
      io_.run();
      return;
    } catch (const std::exception& e) {
      // Probably out of memory. Other connections continue.
      LOG_ERROR("http: a connection failed: {}", e.what());
    }
  }
}

void HttpEngine::Loop::Stop() {
  stopping_ = true;
  error_code ignored;
  listener_.close(ignored);
  retry_.cancel();
  for (const auto id : table_.Ids()) {
    const std::shared_ptr<Connection> connection = open_.at(id);
    connection->StopSoon();
  }
  if (open_.empty()) io_.stop();
}

void HttpEngine::Loop::AwaitNext() {
  listener_.async_wait(tcp::acceptor::wait_read, [this](error_code error) {
    awaits_ = false;
    if (error || stopping_) return;
    AcceptAll();
  });
  awaits_ = true;
}

// async_accept is not used, because the programs that a daemon starts would
// inherit its sockets.
void HttpEngine::Loop::AcceptAll() {
  for (int i = 0; i < kAcceptsAtATime; ++i) {
    sockaddr_storage from = {};
    socklen_t size = sizeof(from);
    Fd fd(::accept4(listener_.native_handle(),
                    reinterpret_cast<sockaddr*>(&from), &size,
                    SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      Admit(std::move(fd), from);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
        errno == ENOMEM) {
      Close(table_.Longest());
      retry_.expires_after(kNoFilesPause);
      retry_.async_wait([this](error_code error) {
        awaits_ = false;
        if (!error && !stopping_) AwaitNext();
      });
      awaits_ = true;
      return;
    }
    // The client is gone already. Accept the next one.
  }
  AwaitNext();
}

void HttpEngine::Loop::Admit(Fd fd, const sockaddr_storage& from) {
  std::optional<ConnectionTable::Id> id;
  std::shared_ptr<Connection> connection;
  try {
    TakeUp(std::move(fd), from, &id, &connection);
  } catch (const std::exception& e) {
    // Probably out of memory. The next connection may succeed.
    LOG_ERROR("http: a connection was not accepted: {}", e.what());
    if (connection != nullptr) connection->Close();
    if (id) Remove(*id);
  }
}

void HttpEngine::Loop::TakeUp(Fd fd, const sockaddr_storage& from,
                              std::optional<ConnectionTable::Id>* id,
                              std::shared_ptr<Connection>* connection) {
  const std::string address = CountedAs(from);
  Close(table_.Evicted(address));
  tcp::socket socket(io_);
  error_code error;
  socket.assign(from.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), fd.get(),
                error);
  if (error) return;
  fd.Release();
  socket.set_option(tcp::no_delay(true), error);
  *id = table_.Add(address, MonotonicNow());
  *connection = std::make_shared<Connection>(this, std::move(socket), **id);
  open_[**id] = *connection;
  (*connection)->Start();
}

void HttpEngine::Loop::Close(std::optional<ConnectionTable::Id> id) {
  if (!id) return;
  // A copy, because it removes itself from the list.
  const std::shared_ptr<Connection> connection = open_.at(*id);
  connection->Close();
}

void HttpEngine::Loop::Remove(ConnectionTable::Id id) {
  table_.Remove(id);
  open_.erase(id);
  if (stopping_ && open_.empty()) io_.stop();
}

void HttpEngine::Loop::Enter(ConnectionTable::Id id, Phase phase,
                             Duration limit) {
  const MonoTime now = MonotonicNow();
  table_.Enter(id, phase, now, limit);
  WakeAt(now + limit);
}

void HttpEngine::Loop::EndBy(ConnectionTable::Id id, MonoTime deadline) {
  table_.EndBy(id, deadline);
  WakeAt(deadline);
}

void HttpEngine::Loop::SetAnswerBytes(ConnectionTable::Id id, size_t bytes) {
  table_.SetAnswerBytes(id, bytes);
  while (const auto oldest = table_.TooMuchWritten()) Close(oldest);
}

void HttpEngine::Loop::WakeAt(MonoTime deadline) {
  if (deadline >= wake_at_) return;
  wake_at_ = deadline;
  timer_.expires_at(
      std::chrono::time_point_cast<std::chrono::steady_clock::duration>(
          deadline));
  timer_.async_wait([this](error_code error) {
    if (error) return;  // An earlier deadline was set.
    wake_at_ = MonoTime::max();
    CloseOverdue();
  });
}

void HttpEngine::Loop::CloseOverdue() {
  for (const auto id : table_.Overdue(MonotonicNow())) Close(id);
  WakeAt(table_.NextDeadline());
}

HttpEngine::HttpEngine(HttpEngineOptions options)
    : loop_(std::make_unique<Loop>(std::move(options))) {}

HttpEngine::~HttpEngine() = default;

void HttpEngine::Start(Fd listener) { loop_->Start(std::move(listener)); }

}  // namespace lockstep::http
