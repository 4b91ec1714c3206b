// How a rank waits for the others, and wakes those that wait for it; layout.h
// says why no wake-up is lost.
//
// The waiter remembers one Need: what the operation at the front lacks. It
// looks for a while where all ranks have a processor, then sleeps.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_WAITER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_WAITER_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "worker/collective/communicator.h"
#include "worker/collective/peer_wait.h"
#include "worker/collective/shm/failure_detector.h"
#include "worker/collective/shm/ranks.h"

namespace lockstep::worker::collective::shm {

// Something that another rank must do before this rank can go on.
struct Need {
  enum Kind { kArrival, kCompletion, kDone, kGiven, kReduced, kTaken };
  Kind kind = kArrival;
  int rank = -1;       // -1, for kCompletion: all ranks that work
  uint64_t value = 0;  // kCompletion: at least this; else more than this
};

// Used by the thread that runs the operations, except current_wait, which any
// thread may call.
class Waiter {
 public:
  // `ranks` and `detector` outlive it. `spins`: every rank can have a processor
  // of its own, so waiting ranks look before they sleep.
  Waiter(const CommunicatorOptions& options, const Ranks* ranks,
         FailureDetector* detector, bool spins);

  // Remembers what is missing.
  void SetNeed(const Need& need) { need_ = need; }
  const Need& need() const { return need_; }
  bool Met(const Need& need) const;

  // Waits until the need is met or the communicator is broken. Breaks the
  // communicator where the need's rank has left. False at `deadline`, or once
  // the operation at the front has been waited for as long as
  // CommunicatorOptions::operation_timeout.
  bool Wait(MonoTime deadline);
  // The next Wait is the first one for another operation.
  void BeginOperation() { waited_ = false; }

  // Wakes the ranks that sleep with `code` (wait_code), because of what this
  // rank has just stored.
  void Wake(uint32_t code);
  // Shows the others on which processor this rank runs.
  void NoteProcessor();

  // Waits that are too short to sleep are none.
  PeerWait current_wait() const { return wait_.Get(); }

  // "rank 2", "rank 1, 3": the ranks that have not met the need.
  std::string LateRanks() const;

 private:
  static uint32_t CodeOf(const Need& need);
  // Whether the need may come true while this rank keeps its processor.
  bool MaySpin() const;
  bool Spin(MonoTime deadline);
  bool Sleep(MonoTime deadline);
  bool SleepUntilMet(MonoTime deadline);
  // Whether `rank` has not met the need.
  bool IsLate(int rank) const;
  // The first one that has not; -1: not known.
  int LateRank() const;

  const std::string label_;
  const Duration timeout_;
  const Ranks& ranks_;
  FailureDetector& detector_;
  const bool spins_;
  uint32_t processor_ = 0;  // 1 + the one that was noted; 0: none
  Need need_;
  // Whether the operation at the front has been waited for, and until when.
  bool waited_ = false;
  MonoTime backstop_;
  CurrentPeerWait wait_;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_WAITER_H_
