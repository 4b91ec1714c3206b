// The failure detector of a communicator: its first error, the ends of its
// peers, and a thread that watches for them.
//
// A peer that leaves in good order sends a goodbye on its socket. The end of a
// socket without it, or of the process (pidfd), is the death of the peer and
// breaks the communicator; also where a child of the peer still holds its
// socket. A rank that breaks writes an exit message into its Control and shuts
// its sockets down, so that all others learn of it at once.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_FAILURE_DETECTOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_FAILURE_DETECTOR_H_

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/broken.h"
#include "worker/collective/shm/rendezvous.h"

namespace lockstep::worker::collective::shm {

class FailureDetector {
 public:
  // `members` outlives it; their sockets are used by this class only.
  // `broken`, which may be empty, is called when the communicator breaks.
  FailureDetector(std::string label, int rank,
                  const std::vector<Member>* members, BrokenFunction broken);
  // Sends goodbye to all peers, unless the communicator is broken.
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  // Starts the watching thread.
  Status Watch();

  // Breaks the communicator; the first reason stays. Wakes this rank where it
  // sleeps, and cuts the connections. Any thread.
  void Break(const Status& reason);
  // Breaks the communicator because of `rank`, with its exit message if it
  // wrote one.
  void PeerDied(int rank);
  void BreakAs(const Status& reason, bool by_peer);
  // Whether `rank` has broken: cheap, and sooner than the thread learns.
  bool HasBroken(int rank) const {
    return members_[rank].segment.control()->ended.load(
               std::memory_order_acquire) != 0;
  }
  // Cheap: for loops.
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // Broken by the end of a peer, and not by this rank: what that peer had done
  // before still holds.
  bool broken_by_peer() const {
    return by_peer_.load(std::memory_order_acquire);
  }
  Status status() const;
  // True once `rank` sent goodbye: it will do no more operations.
  bool HasLeft(int rank) const {
    return left_[rank].load(std::memory_order_acquire);
  }

 private:
  void WatchLoop();
  // False: this peer has ended, stop listening.
  bool Listen(int rank);
  void WakeSelf();

  const std::string label_;
  const int rank_;
  const std::vector<Member>& members_;
  const BrokenFunction broken_function_;
  Fd stop_;  // an eventfd
  std::vector<std::atomic<bool>> left_;
  std::atomic<bool> by_peer_{false};  // before broken_
  std::atomic<bool> broken_{false};
  mutable Mutex mu_;
  Status reason_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_FAILURE_DETECTOR_H_
