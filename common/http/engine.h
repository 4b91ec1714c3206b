// The sockets of an HTTP server: one thread serves all connections, and a few
// run the handlers. Used by server.cc only.
//
// Boost.Asio and Boost.Beast, which wait, speak TLS and parse, stay in
// engine.cc. What a client can take is decided here:
//
// - Each phase of a connection (handshake, head, answer, silence between two
//   requests) has one deadline, however its bytes trickle.
// - When an address or the whole server has as many connections as it may, the
//   one that is in its phase for longest is closed for the newcomer. One whose
//   request waits for its handler is closed only if there is no other.
// - Answers that clients do not read take a bounded amount of memory: the
//   oldest of them are closed.
//
// So a client that sends its request at once is answered, whatever others do
// with the rest of the connections.
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

namespace lockstep {

struct HttpEngineOptions {
  // Null: plain text.
  SslContext tls = nullptr;
  // Handlers at a time.
  int threads = 8;
  ConnectionLimits limits = {};
  // Answers what needs no waiting, on the thread that serves the sockets.
  // None: `answer` is asked.
  std::function<std::optional<HttpResponse>(const HttpHead&)> answer_at_once;
  // Runs on one of `threads`.
  std::function<HttpResponse(const HttpHead&)> answer;
};

class HttpEngine {
 public:
  explicit HttpEngine(HttpEngineOptions options);
  // Ends within `limits.last_words` beside the handlers that run, for which it
  // waits. Requests that are not whole by now get no answer.
  ~HttpEngine();
  HttpEngine(const HttpEngine&) = delete;
  HttpEngine& operator=(const HttpEngine&) = delete;

  // Serves what connects to `listener`, a listening socket, from now on.
  // REQUIRES: not started.
  void Start(Fd listener);

 private:
  class Connection;
  class Loop;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_ENGINE_H_
