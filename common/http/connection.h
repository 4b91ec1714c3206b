// One accepted connection: bytes in and out with deadlines, plain or TLS.
// Used by server.cc only.
//
// cpp-httplib times each read, so a client that sends a byte now and then
// holds a thread for hours, and a server cannot end while it does. Here a
// whole request has one deadline, its head a size, and all connections end
// when the server stops.
#ifndef LOCKSTEP_COMMON_HTTP_CONNECTION_H_
#define LOCKSTEP_COMMON_HTTP_CONNECTION_H_

#include <openssl/ssl.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/http/web_config.h"

namespace lockstep {

struct SslContextDeleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslContext = std::unique_ptr<SSL_CTX, SslContextDeleter>;

// FailedPrecondition: certificate, key or client CA cannot be used.
StatusOr<SslContext> MakeSslContext(const WebTls& tls);

// Which connections are open, so that they can be ended. Thread-safe.
class OpenConnections {
 public:
  // False: no more of them. `fd` stays the caller's.
  bool Add(int fd) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(int fd) ABSL_LOCKS_EXCLUDED(mu_);
  // Nobody's request is read any further; answers that are being written get
  // a moment. All later ones are refused.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  bool stopped() const { return stopped_; }

 private:
  Mutex mu_;
  std::set<int> open_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> stopped_ = false;
};

struct ConnectionLimits {
  // From its acceptance to the last byte of the request, TLS included.
  Duration request = std::chrono::seconds(5);
  // Of the answer.
  Duration answer = std::chrono::seconds(30);
  // Of an answer once the server stops.
  Duration last_words = std::chrono::milliseconds(500);
  size_t request_bytes = 64 << 10;
};

class Connection {
 public:
  // `fd` and `connections` outlive it; null `context`: plain. Makes the socket
  // non-blocking.
  Connection(int fd, SSL_CTX* context, OpenConnections* connections,
             const ConnectionLimits& limits);
  // Says farewell as far as that takes no waiting.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The TLS handshake, if there is any. False: the connection is of no use.
  bool Accept();
  // At least one byte; 0: the end; -1: too slow, too much or broken.
  ssize_t Read(char* to, size_t size);
  // All of it; false: too slow or broken.
  bool Write(std::string_view bytes);
  int fd() const { return fd_; }

 private:
  // Until `events` (of poll) or the deadline.
  bool Wait(short events, MonoTime deadline);
  ssize_t Receive(char* to, size_t size);

  const int fd_;
  OpenConnections* const connections_;
  const ConnectionLimits limits_;
  const MonoTime read_by_;
  MonoTime write_by_{};
  size_t left_;
  SSL* ssl_ = nullptr;
  std::string buffer_;
  size_t taken_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_CONNECTION_H_
