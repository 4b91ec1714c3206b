// What engine.cc and engine_connection.cc share: the two classes of HttpEngine.
// Only they include it, as it alone brings Boost.
#ifndef LOCKSTEP_COMMON_HTTP_ENGINE_PARTS_H_
#define LOCKSTEP_COMMON_HTTP_ENGINE_PARTS_H_

#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/http/answer_text.h"
#include "common/http/connection_table.h"
#include "common/http/engine.h"
#include "common/http/handler_pool.h"

namespace lockstep::http {

// Serves all connections; its thread is the only one that touches them.
class HttpEngine::Loop {
 public:
  explicit Loop(HttpEngineOptions options);
  ~Loop();

  void Start(Fd listener);

  // Connections call the following on the loop's thread.
  void Remove(ConnectionTable::Id id);
  void Enter(ConnectionTable::Id id, ConnectionPhase phase, Duration limit);
  void EndBy(ConnectionTable::Id id, MonoTime deadline);
  // 0 when it is written.
  void SetAnswerBytes(ConnectionTable::Id id, size_t bytes);
  ConnectionPhase phase(ConnectionTable::Id id) const {
    return table_.phase(id);
  }
  void Post(std::function<void()> task) {
    boost::asio::post(io_, std::move(task));
  }

  const HttpEngineOptions& options() const { return options_; }
  bool stopping() const { return stopping_; }
  HandlerPool* pool() { return &pool_; }
  boost::asio::io_context* io() { return &io_; }
  // Null for plain text.
  boost::asio::ssl::context* tls() { return tls_ ? &*tls_ : nullptr; }

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
  std::optional<boost::asio::ssl::context> tls_;
  HandlerPool pool_;
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::acceptor listener_{io_};
  boost::asio::steady_timer retry_{io_};
  boost::asio::steady_timer timer_{io_};
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
  Connection(Loop* loop, boost::asio::ip::tcp::socket socket,
             ConnectionTable::Id id)
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

  void Enter(ConnectionPhase phase, Duration limit) {
    loop_->Enter(id_, phase, limit);
  }
  void Listen();
  void Read();
  void OnBytes(boost::system::error_code error, size_t count);
  void Parse();
  void Serve();
  void Handle(HttpHead head);
  void Refuse(int status, std::string why);
  void Send(AnswerText answer);
  void OnWritten(boost::system::error_code error);
  void Farewell();
  void Drain();

  Loop* const loop_;
  const ConnectionTable::Id id_;
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  // Also read by the handlers' threads.
  std::atomic<bool> closed_ = false;
  std::optional<
      boost::beast::http::request_parser<boost::beast::http::empty_body>>
      parser_;
  std::string buffer_;
  bool keep_alive_ = false;
  bool head_only_ = false;
  AnswerText answer_;
  size_t drained_ = 0;
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_ENGINE_PARTS_H_
