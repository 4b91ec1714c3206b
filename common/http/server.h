// The one HTTP server of every daemon: metrics, health, version.
//
// Read-only: GET and HEAD, paths that are compared as they are. Plain text on
// loopback only, and there only by a name of this machine (host_check.h); any
// other address takes a certificate. cpp-httplib, which
// parses and compresses, stays in server.cc; sockets and TLS are
// connection.h's.
//
// What a client can take: a thread for as long as ConnectionLimits say, 64 KiB
// of request. No more than twice `threads` connections are accepted at a time.
// The server ends within a second of being told to, whatever clients do.
#ifndef LOCKSTEP_COMMON_HTTP_SERVER_H_
#define LOCKSTEP_COMMON_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/http/connection.h"
#include "common/http/web_config.h"

namespace lockstep {

struct HttpRequest {
  std::string path;
  // Decoded; of a name that comes twice, the first.
  std::map<std::string, std::string> query;
  // What the client calls this server: "Host" as sent, maybe empty.
  std::string host;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Beside those that every answer has.
  std::map<std::string, std::string> headers = {};
};

struct HttpServerOptions {
  // HOST:PORT to listen on; port 0 takes a free one.
  std::string address;
  // TLS is required unless `address` is loopback.
  WebConfig web = {};
  // Requests at a time. More wait, unread, in the kernel.
  int threads = 8;
  ConnectionLimits limits = {};
};

class HttpServer {
 public:
  // Runs on the server's threads, several at once; must not block for long.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Errors: InvalidArgument the address is malformed, or others can reach it
  // and there is no certificate; FailedPrecondition certificate, key or client
  // CA cannot be used.
  static StatusOr<std::unique_ptr<HttpServer>> Create(
      const HttpServerOptions& options);

  // Stops, and waits for the handlers that run. Who has not sent the whole
  // request by now gets no answer.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Every answer is compressed where the client accepts it. REQUIRES: not
  // started.
  void Handle(const std::string& path, Handler handler);
  // All paths that begin with `prefix`, unless another handler knows the path
  // or a longer prefix of it. REQUIRES: not started.
  void HandlePrefix(const std::string& prefix, Handler handler);

  // Listens and answers from now on. Unavailable: cannot listen there.
  // REQUIRES: not started.
  Status Start();

  // With the port that was bound. REQUIRES: started.
  const std::string& address() const;
  int port() const;
  // Whether it speaks TLS.
  bool tls() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_SERVER_H_
