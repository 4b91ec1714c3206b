// The sockets of the worker daemon's end of the rank link: accepts, sends and
// closes. Which connection belongs to which rank is server.h.
//
// A connection that sends no Hello within 5 s is closed. At most 64 connections
// of users that run a rank here may wait for that, and 8 of other users. A rank
// that does not read gets 256 messages queued, then is cut off.
#ifndef LOCKSTEP_WORKER_RANK_LINK_CONNECTIONS_H_
#define LOCKSTEP_WORKER_RANK_LINK_CONNECTIONS_H_

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"
#include "worker/rank_link/rank_key.h"

namespace lockstep::worker::rank_link {

struct RankConnection {
  uint64_t id = 0;
  Fd fd;
  ucred peer{};
  // Its pidfd, of a rank of a program; none where the system gives none.
  Fd process;
  MonoTime hello_due;
  // Set by a Hello that was accepted.
  std::optional<RankKey> key;
  std::deque<std::string> out;
  bool wants_write = false;
  // To be closed by the next Sweep.
  bool closing = false;
};

// Thread-compatible. No call blocks.
class RankConnections {
 public:
  // Removes the socket's file.
  ~RankConnections();
  // Listens at `path`. Errors of the system.
  static StatusOr<std::unique_ptr<RankConnections>> Listen(
      const std::string& path);

  const std::string& path() const { return path_; }
  // An epoll descriptor: readable when Dispatch has something to do.
  int fd() const { return epoll_.get(); }
  // Calls `read` for each connection that can be read now, flushes those that
  // can be written, and accepts new ones, as far as `has_rank` (whether a user
  // runs a rank here) leaves room.
  void Dispatch(const std::function<bool(uid_t)>& has_rank,
                const std::function<void(uint64_t id)>& read);

  // Null where there is none, or it is closing.
  RankConnection* Find(uint64_t id) const;
  // Sends `packet`, at once or later.
  void Send(RankConnection* connection, std::string packet);
  // The next Sweep closes it, and fd() becomes readable for that.
  void MarkForClose(RankConnection* connection);
  // Takes out the connections that are closing or said no Hello in time.
  std::vector<std::unique_ptr<RankConnection>> Sweep();
  // Makes fd() readable when the next one is due.
  void Arm();

 private:
  RankConnections(std::string path, Fd listener, Fd epoll);
  Status Watch(int fd, uint64_t id);
  void Accept(const std::function<bool(uid_t)>& has_rank);
  // For one more connection that has not said Hello.
  bool HasRoomFor(uid_t uid, const std::function<bool(uid_t)>& has_rank) const;
  void Flush(RankConnection* connection);
  void ArmIn(Duration in);

  const std::string path_;
  Fd listener_;
  Fd epoll_;
  Fd timer_;  // Readable when a connection is to be closed.
  uint64_t next_id_ = 2;
  std::map<uint64_t, std::unique_ptr<RankConnection>> connections_;
};

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_CONNECTIONS_H_
