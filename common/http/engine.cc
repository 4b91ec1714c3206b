#include "common/http/engine.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <cerrno>
#include <cstddef>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/logging.h"
#include "common/http/answer_text.h"
#include "common/http/connection_table.h"
#include "common/http/handler_pool.h"

namespace lockstep::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Phase = ConnectionPhase;
using RequestParser = beast_http::request_parser<beast_http::empty_body>;

constexpr size_t kReadBytes = 4096;
// How long a client may take to close a connection that the server has closed,
// and how much it may send meanwhile.
constexpr Duration kFarewell = std::chrono::seconds(1);
constexpr size_t kFarewellBytes = 1 << 20;
// Connections accepted before other work gets a turn.
constexpr int kAcceptsAtATime = 32;
// Time before the next accept after the process ran out of descriptors.
constexpr Duration kNoFilesPause = std::chrono::milliseconds(50);

std::string Field(const RequestParser& parser, beast_http::field name) {
  const auto value = parser.get()[name];
  return {value.data(), value.size()};
}

HttpHead HeadOf(const RequestParser& parser) {
  const auto& message = parser.get();
  HttpHead head;
  head.method = std::string(message.method_string());
  head.target = std::string(message.target());
  head.host = Field(parser, beast_http::field::host);
  head.authorization = Field(parser, beast_http::field::authorization);
  head.cookie = Field(parser, beast_http::field::cookie);
  head.accept_encoding = Field(parser, beast_http::field::accept_encoding);
  head.has_range = message.count(beast_http::field::range) > 0;
  return head;
}

}  // namespace

// Serves all connections; its thread is the only one that touches them.
class HttpEngine::Loop {
 public:
  explicit Loop(HttpEngineOptions options);
  ~Loop();

  void Start(Fd listener);

  // Connections call the following on the loop's thread.
  void Remove(ConnectionTable::Id id);
  void Enter(ConnectionTable::Id id, Phase phase, Duration limit);
  void EndBy(ConnectionTable::Id id, MonoTime deadline);
  // 0 when it is written.
  void SetAnswerBytes(ConnectionTable::Id id, size_t bytes);
  Phase phase(ConnectionTable::Id id) const { return table_.phase(id); }
  void Post(std::function<void()> task) { asio::post(io_, std::move(task)); }

  const HttpEngineOptions& options() const { return options_; }
  bool stopping() const { return stopping_; }
  HandlerPool* pool() { return &pool_; }
  asio::io_context* io() { return &io_; }
  // Null for plain text.
  asio::ssl::context* tls() { return tls_ ? &*tls_ : nullptr; }

 private:
  void Run();
  void Stop();
  void AwaitNext();
  void AcceptAll();
  // Never throws. A connection that cannot be served is closed.
  void Admit(Fd fd, const sockaddr_storage& from);
  // The second part of Admit. It sets what to remove if it throws.
  void TakeUp(Fd fd, const sockaddr_storage& from,
              std::optional<ConnectionTable::Id>* id,
              std::shared_ptr<Connection>* connection);
  void Close(std::optional<ConnectionTable::Id> id);
  // Wakes the loop by `deadline`.
  void WakeAt(MonoTime deadline);
  void CloseOverdue();

  HttpEngineOptions options_;
  std::optional<asio::ssl::context> tls_;
  HandlerPool pool_;
  asio::io_context io_{1};
  tcp::acceptor listener_{io_};
  asio::steady_timer retry_{io_};
  asio::steady_timer timer_{io_};
  MonoTime wake_at_ = MonoTime::max();
  ConnectionTable table_;
  std::map<ConnectionTable::Id, std::shared_ptr<Connection>> open_;
  bool stopping_ = false;
  // An accept or the end of a pause is pending.
  bool awaits_ = false;
  std::thread thread_;
};

// One connection. Its pending operations and the loop's list own it.
class HttpEngine::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop* loop, tcp::socket socket, ConnectionTable::Id id)
      : loop_(loop), id_(id), socket_(std::move(socket)) {
    if (loop->tls() != nullptr) tls_.emplace(socket_, *loop->tls());
  }

  void Start();
  // Closes it at once. No effect if it is closed.
  void Close();
  // Applies the server's shutdown to this connection.
  void StopSoon();

 private:
  template <typename Function>
  void WithStream(Function function) {
    if (tls_) {
      function(*tls_);
    } else {
      function(socket_);
    }
  }
  const ConnectionLimits& limits() const { return loop_->options().limits; }

  void Enter(Phase phase, Duration limit) { loop_->Enter(id_, phase, limit); }
  void Listen();
  void Read();
  void OnBytes(error_code error, size_t count);
  void Parse();
  void Serve();
  void Handle(HttpHead head);
  void Refuse(int status, std::string why);
  void Send(AnswerText answer);
  void OnWritten(error_code error);
  void Farewell();
  void Drain();

  Loop* const loop_;
  const ConnectionTable::Id id_;
  tcp::socket socket_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
  // Also read by the handlers' threads.
  std::atomic<bool> closed_ = false;
  std::optional<RequestParser> parser_;
  std::string buffer_;
  bool keep_alive_ = false;
  bool head_only_ = false;
  AnswerText answer_;
  size_t drained_ = 0;
};

void HttpEngine::Connection::Start() {
  if (!tls_) return Listen();
  Enter(Phase::kHandshake, limits().handshake);
  tls_->async_handshake(asio::ssl::stream_base::server,
                        [self = shared_from_this()](error_code error) {
                          if (self->closed_) return;
                          if (error) return self->Close();
                          self->Listen();
                        });
}

// Waits for the first request of the connection or the next.
void HttpEngine::Connection::Listen() {
  const bool waits = parser_.has_value() && buffer_.empty();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits().request_bytes));
  Enter(waits ? Phase::kIdle : Phase::kHead,
        waits ? limits().idle : limits().request);
  if (buffer_.empty()) return Read();
  Parse();
}

void HttpEngine::Connection::Read() {
  const size_t before = buffer_.size();
  buffer_.resize(before + kReadBytes);
  WithStream([&](auto& stream) {
    stream.async_read_some(
        asio::buffer(buffer_.data() + before, kReadBytes),
        [self = shared_from_this(), before](error_code error, size_t count) {
          self->buffer_.resize(before + (error ? 0 : count));
          self->OnBytes(error, count);
        });
  });
}

void HttpEngine::Connection::OnBytes(error_code error, size_t count) {
  if (closed_) return;
  if (error || count == 0) return Close();
  if (loop_->phase(id_) == Phase::kIdle) Enter(Phase::kHead, limits().request);
  Parse();
}

void HttpEngine::Connection::Parse() {
  error_code error;
  const size_t used = parser_->put(asio::buffer(buffer_), error);
  buffer_.erase(0, used);
  if (error == beast_http::error::need_more) error = {};
  const bool too_long = error == beast_http::error::header_limit ||
                        (!error && !parser_->is_header_done() &&
                         buffer_.size() >= limits().request_bytes);
  if (too_long) return Refuse(431, "the request's head is too long\n");
  if (error) return Refuse(400, "this is not an HTTP/1.1 request\n");
  if (!parser_->is_header_done()) return Read();
  Serve();
}

void HttpEngine::Connection::Serve() {
  const auto& message = parser_->get();
  if (message.method() == beast_http::verb::unknown) {
    return Refuse(400, "the method is not known\n");
  }
  if (message.count(beast_http::field::host) > 1) {
    return Refuse(400, "a request names one host\n");
  }
  // A request body is not read, so the connection closes after the answer.
  keep_alive_ = message.keep_alive() && parser_->is_done();
  head_only_ = message.method() == beast_http::verb::head;
  HttpHead head = HeadOf(*parser_);
  head.certified = tls_ && HasVerifiedPeer(tls_->native_handle());
  Handle(std::move(head));
}

void HttpEngine::Connection::Handle(HttpHead head) {
  auto answer = loop_->options().answer_at_once(head);
  if (answer) {
    return Send(MakeAnswerText(*std::move(answer), head.accept_encoding));
  }
  // A handler ends by itself.
  Enter(Phase::kHandling, std::chrono::hours(24));
  loop_->pool()->Add([self = shared_from_this(), head = std::move(head)] {
    if (self->closed_) return;
    HttpResponse response;
    try {
      response = self->loop_->options().answer(head);
    } catch (...) {
      // The cause is not for clients.
      response = {.status = 500, .body = "internal error\n"};
    }
    auto text = std::make_shared<AnswerText>(
        MakeAnswerText(std::move(response), head.accept_encoding));
    self->loop_->Post([self, text] { self->Send(std::move(*text)); });
  });
}

void HttpEngine::Connection::Refuse(int status, std::string why) {
  keep_alive_ = false;
  head_only_ = false;
  Send(MakeAnswerText({.status = status, .body = std::move(why)}, ""));
}

void HttpEngine::Connection::Send(AnswerText answer) {
  if (closed_) return;
  keep_alive_ = keep_alive_ && !loop_->stopping();
  answer_ = std::move(answer);
  if (head_only_) answer_.body.clear();
  answer_.head += keep_alive_ ? "Connection: keep-alive\r\n\r\n"
                              : "Connection: close\r\n\r\n";
  Enter(Phase::kWriting,
        loop_->stopping() ? limits().shutdown : limits().answer);
  WithStream([&](auto& stream) {
    asio::async_write(
        stream,
        std::array<asio::const_buffer, 2>{asio::buffer(answer_.head),
                                          asio::buffer(answer_.body)},
        [self = shared_from_this()](error_code error, size_t) {
          self->OnWritten(error);
        });
  });
  loop_->SetAnswerBytes(id_, answer_.head.size() + answer_.body.size());
}

void HttpEngine::Connection::OnWritten(error_code error) {
  answer_ = {};
  loop_->SetAnswerBytes(id_, 0);
  if (closed_) return;
  if (error) return Close();
  if (keep_alive_ && !loop_->stopping()) return Listen();
  Farewell();
}

// Closing a socket with unread bytes may discard the answer, so the client gets
// time to close first.
void HttpEngine::Connection::Farewell() {
  Enter(Phase::kFarewell, loop_->stopping() ? limits().shutdown : kFarewell);
  if (!tls_) return Drain();
  tls_->async_shutdown([self = shared_from_this()](error_code) {
    if (!self->closed_) self->Drain();
  });
}

void HttpEngine::Connection::Drain() {
  error_code ignored;
  if (drained_ == 0) socket_.shutdown(tcp::socket::shutdown_send, ignored);
  buffer_.resize(kReadBytes);
  socket_.async_read_some(
      asio::buffer(buffer_),
      [self = shared_from_this()](error_code error, size_t count) {
        if (self->closed_) return;
        self->drained_ += count;
        if (error || self->drained_ > kFarewellBytes) return self->Close();
        self->Drain();
      });
}

void HttpEngine::Connection::Close() {
  if (closed_.exchange(true)) return;
  error_code ignored;
  // The kernel discards the rest of an unfinished answer.
  if (loop_->phase(id_) == Phase::kWriting) {
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  }
  socket_.close(ignored);
  loop_->Remove(id_);
}

void HttpEngine::Connection::StopSoon() {
  const Phase phase = loop_->phase(id_);
  if (phase != Phase::kHandling && phase != Phase::kWriting) return Close();
  loop_->EndBy(id_, MonotonicNow() + limits().shutdown);
}

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
