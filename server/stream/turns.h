// Who may be at it: so many calls of one role at once, and so many of one
// caller; the others wait for their turn, without a thread.
#ifndef LOCKSTEP_SERVER_STREAM_TURNS_H_
#define LOCKSTEP_SERVER_STREAM_TURNS_H_

#include <list>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/pki/identity.h"
#include "common/rpc/call_pools.h"
#include "server/stream/stream_reactor.h"

namespace lockstep {

struct TurnLimits {
  // Of each role: none keeps another waiting.
  int at_once = 0;
  // Of these, of one caller.
  int of_caller = 0;
  // Calls that wait, of each role, and for how long.
  int waiting = 256;
  Duration patience = std::chrono::seconds(20);
  // Of these, of one caller, so many times `of_caller`: no caller takes all
  // places of its role.
  int waiting_per_turn = 4;
};

// Thread-safe.
class Turns {
 public:
  // `what` as in "16 uploads go on already".
  Turns(std::string what, const TurnLimits& limits)
      : what_(std::move(what)), limits_(limits) {}

  // One call that wants a turn. Ends before its call and before `Turns`. Its
  // calls are one at a time.
  class Turn {
   public:
    // `peer`, which outlives it, is woken when the turn comes.
    Turn(Turns* turns, const Identity& caller, StreamPeer* peer);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // OK: it has the turn. Unavailable (reason BUSY): the turn did not come.
    // Nullopt: it waits, at most until deadline().
    std::optional<Status> Take();
    MonoTime deadline() const { return deadline_; }
    // The peer has sent or taken something.
    void Progress();

   private:
    friend class Turns;
    enum class State { kWaits, kHas, kRefused };
    Turns* const turns_;
    StreamPeer* const peer_;
    const std::string caller_;
    const CallRole role_;
    const MonoTime deadline_;
    State state_ ABSL_GUARDED_BY(turns_->mu_) = State::kWaits;
    MonoTime last_progress_ ABSL_GUARDED_BY(turns_->mu_);
  };

  // Cancels the calls that have stood still since `time`.
  void CancelIdle(MonoTime time);

 private:
  bool IsFull(const Turn& turn) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // There is a place for it among those that wait.
  bool MayWait(const Turn& turn) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those who have their turn and are of its role.
  int OpenOf(CallRole role) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Busy(CallRole role) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Give(Turn* turn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After one has left.
  void GiveNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string what_;
  const TurnLimits limits_;
  Mutex mu_;
  // Who came first is first.
  std::list<Turn*> waiting_ ABSL_GUARDED_BY(mu_);
  std::set<Turn*> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STREAM_TURNS_H_
