// Who may be at it: so many calls at once, and so many of one caller; the
// others wait for their turn.
#ifndef LOCKSTEP_SERVER_SERVICE_TURNS_H_
#define LOCKSTEP_SERVER_SERVICE_TURNS_H_

#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace grpc {
class ServerContext;
}  // namespace grpc

namespace lockstep {

struct TurnLimits {
  int at_once = 0;
  // Of these, of one caller.
  int of_caller = 0;
  // Calls that wait, and for how long.
  int waiting = 256;
  Duration patience = std::chrono::seconds(20);
};

// Thread-safe.
class Turns {
 public:
  // `what` as in "16 uploads go on already".
  Turns(std::string what, const TurnLimits& limits)
      : what_(std::move(what)), limits_(limits) {}

  // One call that has its turn. Ends before its call and before `Turns`.
  class Turn {
   public:
    Turn(Turns* turns, grpc::ServerContext* context);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // Unavailable: the turn did not come. Cancelled: the call is over.
    const Status& status() const { return status_; }
    // The peer has sent or taken something.
    void Progress();

   private:
    friend class Turns;
    Turns* const turns_;
    grpc::ServerContext* const context_;
    const std::string caller_;
    Status status_;
    MonoTime last_progress_ ABSL_GUARDED_BY(turns_->mu_);
  };

  // Cancels the calls that have stood still since `time`.
  void CancelIdle(MonoTime time);

 private:
  bool IsFull(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Wait(const Turn& turn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string what_;
  const TurnLimits limits_;
  Mutex mu_;
  CondVar left_;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<Turn*> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_TURNS_H_
