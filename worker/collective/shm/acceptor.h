// The accepting side of rendezvous.h: receives the handshakes of ranks that
// connect, and lets members in.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_ACCEPTOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_ACCEPTOR_H_

#include <sys/types.h>

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"
#include "worker/collective/shm/handshake.h"

namespace lockstep::worker::collective::shm {

// A rank that has proved its membership, and its memory.
struct Peer {
  int rank = 0;
  Hello hello{};
  pid_t pid = 0;
  Fd socket;
  Fd file;  // empty: the rank sent none
};

// Used by one thread.
class Acceptor {
 public:
  struct Options {
    std::string key;
    Hello hello{};
    int memory = -1;  // the file to give to members; borrowed
    // Whether a rank may come: it is higher than this one and not in yet.
    std::function<bool(int64_t rank)> expects;
  };
  // `listener` listens, and does not block.
  Acceptor(Options options, Fd listener)
      : options_(std::move(options)), listener_(std::move(listener)) {}

  // Returns the ranks that came in before `deadline`, as soon as there is one.
  // An error ends forming: a rank has another key, or went away half-way.
  StatusOr<std::vector<Peer>> Receive(MonoTime deadline);

 private:
  // A process that has connected and has not proved its membership yet.
  struct PendingPeer {
    Fd socket;
    pid_t pid = 0;
    MonoTime deadline;
    bool answered = false;  // Hello came and was answered
    Hello hello{};
  };

  void LetIn(MonoTime now);
  // One step with a peer. An error ends forming; *leave: drop the peer.
  Status Advance(PendingPeer* peer, MonoTime now, bool* leave);
  Status ReceiveProof(PendingPeer* peer, MonoTime now, bool* leave);

  const Options options_;
  const Fd listener_;
  std::list<PendingPeer> pending_;
  std::vector<Peer> accepted_;
  // A process that claimed to be a rank came with another key.
  Status doubtful_;
  MonoTime doubt_ends_;
};

// Unauthenticated (WRONG_JOB_KEY).
Status WrongKey(int theirs, int mine);
// For poll(2): until `deadline`, at most a second.
int PollMillis(MonoTime now, MonoTime deadline);

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_ACCEPTOR_H_
