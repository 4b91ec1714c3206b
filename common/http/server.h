// The one HTTP server of every daemon: metrics, health, version.
//
// Read-only: GET and HEAD, paths that are compared as they are. Plain text on
// loopback only, and there only by a name of this machine (host_check.h); any
// other address takes a certificate. Who may read is access.h's.
//
// One thread serves all sockets (engine.h) and a few run the handlers, so
// clients that are slow or silent delay nobody, and slow handlers delay only
// other handlers. What a client can take is ConnectionLimits'. The server ends
// within a second of being told to, whatever clients do.
#ifndef LOCKSTEP_COMMON_HTTP_SERVER_H_
#define LOCKSTEP_COMMON_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/http/access_token.h"
#include "common/http/limits.h"
#include "common/http/message.h"
#include "common/http/web_config.h"

namespace lockstep {

struct HttpServerOptions {
  // HOST:PORT to listen on; port 0 takes a free one.
  std::string address;
  // TLS is required unless `address` is loopback.
  WebConfig web = {};
  // Null: none is asked for (access.h).
  std::shared_ptr<AccessToken> token = nullptr;
  // Handlers at a time. More requests wait.
  int threads = 8;
  ConnectionLimits limits = {};
};

class HttpServer {
 public:
  // Runs on the handlers' threads, several at once. Others wait while it runs:
  // it must not block for long.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Errors: InvalidArgument the address is malformed, or others can reach it
  // and there is no certificate; FailedPrecondition certificate, key or client
  // CA cannot be used.
  static StatusOr<std::unique_ptr<HttpServer>> Create(
      const HttpServerOptions& options);

  // Stops, and waits for the handlers that run. A request that is not whole by
  // now gets no answer.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Every answer is compressed where the client accepts it. REQUIRES: not
  // started.
  void Handle(const std::string& path, Handler handler);
  // All paths that begin with `prefix`, unless another handler knows the path
  // or a longer prefix of it. REQUIRES: not started.
  void HandlePrefix(const std::string& prefix, Handler handler);

  // As Handle(); neither token nor password is asked for. REQUIRES: not
  // started.
  void HandleOpen(const std::string& path, Handler handler);

  // As Handle(), on the thread that serves the sockets: always, even while all
  // handlers are busy. `handler` must not wait for anything, a lock included.
  // Everybody may ask, by any name, without token or password. REQUIRES: not
  // started.
  void HandleAtOnce(const std::string& path, Handler handler);

  // Listens and answers from now on, and warns where everybody may read.
  // Unavailable: cannot listen there.
  // REQUIRES: not started.
  Status Start();

  // With the port that was bound. REQUIRES: started.
  const std::string& address() const;
  int port() const;
  // Requests that were refused for want of a token or a password.
  uint64_t refused() const;
  // Whether it speaks TLS.
  bool tls() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_SERVER_H_
