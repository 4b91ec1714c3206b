// The worker daemon's end of the link to its ranks.
//
// A rank connects, sends Hello with its nonce and gets Welcome. From then on
// the connection belongs to that rank. It may break at any time: the rank comes
// back by path and sends Hello again, and the newest connection counts. The
// server keeps the messages that a rank must not miss (Go, Abort, directives
// that are not done) and sends them again after each Welcome; the rank repeats
// its unanswered questions and its latest reports by itself. So a handler of
// events must accept repeats, and can ignore broken connections.
//
// A rank of a program (RankWelcome.program) may have many processes, and one of
// them joins. While it lives and is connected, a Hello of another one is
// refused; its own, with the same RankHello.instance, is a reconnect. A server
// that has just started knows of no process: the first Hello counts.
//
// A rank whose protocol the server does not have (protocol.h) is refused.
//
// A peer loses its connection when it sends a packet that is too long or not a
// RankMessage, anything before Hello, or a Hello with a wrong nonce or from
// another user; no other connection is affected. connections.h has the limits.
//
// Thread-compatible: call everything from one thread, which waits for fd() to
// become readable (level-triggered) and then calls Dispatch(). Nothing here
// blocks: a rank that does not read is cut off and may come back.
#ifndef LOCKSTEP_WORKER_RANK_LINK_SERVER_H_
#define LOCKSTEP_WORKER_RANK_LINK_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/rank.pb.h"
#include "worker/rank_link/connections.h"
#include "worker/rank_link/rank_key.h"

namespace lockstep::worker::rank_link {

// Called from Dispatch(). A handler may call the server, Forget() included.
class RankLinkHandler {
 public:
  virtual ~RankLinkHandler() = default;
  // After Welcome was sent; also at each reconnect.
  virtual void OnHello(const RankKey& /*key*/) {}
  // A repeat has the same value.
  virtual void OnPut(const RankKey& /*key*/, const std::string& /*name*/,
                     const std::string& /*value*/) {}
  // Answer with SendValue, now or later.
  virtual void OnGet(const RankKey& /*key*/, const std::string& /*name*/) {}
  virtual void OnJoined(const RankKey& /*key*/,
                        const v1::RankJoined& /*joined*/) {}
  virtual void OnReport(const RankKey& /*key*/,
                        const v1::RankReport& /*report*/) {}
  virtual void OnDisconnect(const RankKey& /*key*/) {}
};

class RankLinkServer {
 public:
  // Listens at `path`. `handler` is borrowed.
  static StatusOr<std::unique_ptr<RankLinkServer>> Listen(
      const std::string& path, RankLinkHandler* handler);
  // Closes everything and removes the socket from the file system.
  ~RankLinkServer();
  RankLinkServer(const RankLinkServer&) = delete;
  RankLinkServer& operator=(const RankLinkServer&) = delete;

  // An epoll descriptor: readable when Dispatch() has something to do.
  int fd() const { return connections_->fd(); }
  void Dispatch();

  const std::string& path() const { return connections_->path(); }

  // From now on a process of `uid` that shows `nonce` (1 to 64 bytes) is rank
  // `key`, and gets `welcome`. Replaces nonce, uid and welcome of `key`; its
  // connection and the messages kept for it stay. A connected rank gets a
  // welcome with a higher recovery at once. After a restart of the daemon
  // expect all adopted ranks before the first Dispatch.
  void Expect(const RankKey& key, const std::string& nonce, uid_t uid,
              const v1::RankWelcome& welcome);
  // Cuts the rank off; a Hello of it is refused from now on.
  void Forget(const RankKey& key);

  // Sends `message`. Go, Abort and Directives that are not done are kept, sent
  // again after a reconnect, and sent later if there is no connection now;
  // other kinds are dropped then. False: `key` is not expected.
  bool Send(const RankKey& key, const v1::DaemonMessage& message);
  bool SendValue(const RankKey& key, const std::string& name,
                 const std::string& value);
  bool SendGo(const RankKey& key);
  bool SendAbort(const RankKey& key, const std::string& message);
  bool SendDirective(const RankKey& key, uint32_t id,
                     v1::RankDirective::Kind kind);

  // False once the process of a program has ended, even if a child of it has
  // the socket.
  bool connected(const RankKey& key) const;
  // The pid that the kernel says holds the connection; 0: none.
  pid_t pid(const RankKey& key) const;

 private:
  struct Expected;

  RankLinkServer(RankLinkHandler* handler,
                 std::unique_ptr<RankConnections> connections);
  // Null: not connected.
  const RankConnection* Connected(const RankKey& key) const;
  void Read(uint64_t id);
  bool OnMessage(RankConnection* connection, const v1::RankMessage& message);
  bool OnHello(RankConnection* connection, const v1::RankHello& hello);
  void ForgetDirectives(const RankKey& key, uint32_t done);
  void Refuse(RankConnection* connection, const std::string& message,
              bool taken = false);
  void Sweep();

  RankLinkHandler* const handler_;
  const std::unique_ptr<RankConnections> connections_;
  std::map<RankKey, std::unique_ptr<Expected>> expected_;
};

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_SERVER_H_
