// The HTTP server of every daemon: metrics, health, version.
//
// Read-only: GET and HEAD, with paths compared literally. Plain text is allowed
// on loopback only, and there only by a name of this machine (host_check.h).
// Any other address requires a certificate. access.h decides which clients may
// read.
//
// One thread serves all sockets (engine.h) and a few run the handlers. So slow
// or silent clients delay no other client, and slow handlers delay only
// handlers. ConnectionLimits bounds the clients. The server stops within a
// second, whatever clients do.
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

namespace lockstep::http {

struct HttpServerOptions {
  // HOST:PORT to listen on; port 0 takes a free one.
  std::string address;
  // TLS is required unless `address` is loopback.
  WebConfig web = {};
  // Null if no token is required (access.h).
  std::shared_ptr<AccessToken> token = nullptr;
  // Concurrent handlers. Further requests wait.
  int threads = 8;
  ConnectionLimits limits = {};
};

class HttpServer {
 public:
  // Runs on the handlers' threads, several at once. It must not block for long,
  // because other requests wait.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Errors: InvalidArgument if the address is malformed, or not loopback and
  // without a certificate; FailedPrecondition if certificate, key or client CA
  // is unusable.
  static StatusOr<std::unique_ptr<HttpServer>> Create(
      const HttpServerOptions& options);

  // Stops, and waits for running handlers. Requests that are incomplete by now
  // get no answer.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Compresses every answer if the client accepts it. REQUIRES: not started.
  void Handle(const std::string& path, Handler handler);
  // Handles all paths with `prefix` that no other handler and no longer prefix
  // handles. REQUIRES: not started.
  void HandlePrefix(const std::string& prefix, Handler handler);

  // Handle() without token or password. REQUIRES: not started.
  void HandleOpen(const std::string& path, Handler handler);

  // Handle() on the socket thread, so it answers while all handlers are busy.
  // `handler` must not wait, not even for a lock. Needs no token, password or
  // known host name. REQUIRES: not started.
  void HandleAtOnce(const std::string& path, Handler handler);

  // Listens and starts to answer. Warns if no credentials are required.
  // Unavailable if it cannot listen. REQUIRES: not started.
  Status Start();

  // The address with the bound port. REQUIRES: started.
  const std::string& address() const;
  int port() const;
  // Requests rejected because of a missing or wrong token or password.
  uint64_t refused() const;
  // Whether it speaks TLS.
  bool tls() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_SERVER_H_
