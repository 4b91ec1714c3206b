// The sockets of an HTTP server. One thread serves all connections, and a few
// run the handlers. Only server.cc uses it.
//
// Boost.Asio and Boost.Beast wait, speak TLS and parse; they are behind
// engine_parts.h. Limits for clients are applied here:
//
// - Each phase of a connection (handshake, head, answer, idle time between
//   requests) has one deadline, however slowly bytes arrive.
// - When an address or the server has its maximum of connections, the one that
//   has been in its phase longest is closed for the new one. One whose request
//   waits for its handler is closed only if there is no other.
// - Unread answers take bounded memory: the oldest are closed.
//
// So a client that sends its request at once gets an answer, whatever other
// connections do.
#ifndef LOCKSTEP_COMMON_HTTP_ENGINE_H_
#define LOCKSTEP_COMMON_HTTP_ENGINE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/fd.h"
#include "common/http/limits.h"
#include "common/http/message.h"
#include "common/http/tls.h"

namespace lockstep::http {

struct HttpEngineOptions {
  // Null for plain text.
  SslContext tls = nullptr;
  // Concurrent handlers.
  int threads = 8;
  ConnectionLimits limits = {};
  // Answers requests that need no waiting, on the socket thread. If it returns
  // nullopt, `answer` runs.
  std::function<std::optional<HttpResponse>(const HttpHead&)> answer_at_once;
  // Runs on one of `threads`.
  std::function<HttpResponse(const HttpHead&)> answer;
};

class HttpEngine {
 public:
  explicit HttpEngine(HttpEngineOptions options);
  // Waits for running handlers, and at most `limits.shutdown` longer. Requests
  // that are incomplete by now get no answer.
  ~HttpEngine();
  HttpEngine(const HttpEngine&) = delete;
  HttpEngine& operator=(const HttpEngine&) = delete;

  // Starts serving `listener`, a listening socket. REQUIRES: not started.
  void Start(Fd listener);

 private:
  class Connection;
  class Loop;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_ENGINE_H_
