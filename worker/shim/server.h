// The shim's end of its Unix socket (worker/task/shim_messages.h).
#ifndef LOCKSTEP_WORKER_SHIM_SERVER_H_
#define LOCKSTEP_WORKER_SHIM_SERVER_H_

#include <poll.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/shim/io.h"
#include "worker/task/shim_messages.h"

namespace lockstep::worker::shim {

// Accepts only root and the shim's own user (SO_PEERCRED), and only after a
// HELLO with the nonce. Never waits for a peer: a peer that does not read its
// answers is disconnected and may connect again.
class Server {
 public:
  // Called for each request of a greeted connection, with the descriptors that
  // came with it; returns the answer.
  using Handler = std::function<task::ShimReply(const task::ShimRequest&,
                                                std::vector<Fd> fds)>;

  Server(std::string nonce, Handler handler)
      : nonce_(std::move(nonce)), handler_(std::move(handler)) {}

  // Replaces a socket file without a listener. If another shim listens,
  // *error_number is EADDRINUSE.
  bool Listen(const std::string& path, std::string* error, int* error_number);
  bool listening() const { return static_cast<bool>(listener_); }

  // Descriptors to poll, and their handling afterwards. `fds` are the entries
  // that AddFds added, in order.
  void AddFds(std::vector<pollfd>* fds) const;
  void OnReady(const pollfd* fds, size_t count, int64_t now);
  // Next time at which OnReady must run without an event; -1: never.
  int64_t NextDeadline() const;

  // Sends to every greeted connection without a request.
  void Push(const task::ShimReply& reply);
  bool HasConnections() const { return !connections_.empty(); }

 private:
  struct Connection {
    Fd fd;
    bool greeted = false;
    int64_t greet_by = 0;  // MonoNanos.
  };

  void Accept(int64_t now);
  // Returns false if the connection must be closed.
  bool OnReadable(Connection* connection);
  bool Answer(Connection* connection, const task::ShimRequest& request,
              std::vector<Fd> fds);
  static bool Send(const Connection& connection, const task::ShimReply& reply);

  const std::string nonce_;
  const Handler handler_;
  Fd listener_;
  std::vector<Connection> connections_;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_SERVER_H_
