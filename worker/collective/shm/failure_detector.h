// Whether a communicator still lives: its first error, its peers' ends, and a
// thread that watches for them.
//
// A peer that leaves in good order says so on its socket. The end of a socket
// without it, or of the process (pidfd), is the death of the peer, and breaks
// the communicator; also where a child of the peer still holds its socket.
// A rank that breaks writes why into its Control and shuts its sockets down,
// so that all others learn at once.
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

namespace lockstep::shm {

class FailureDetector {
 public:
  // `members` outlives it; their sockets are used by this class only.
  // `told` may be empty.
  FailureDetector(std::string label, int rank,
                  const std::vector<Member>* members, BrokenFunction told);
  // Says goodbye, where nothing broke.
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  // Starts the watching thread.
  Status Watch();

  // The first reason stays. Wakes this rank where it sleeps, and cuts the
  // connections. Any thread.
  void Break(const Status& reason);
  // Breaks because of `rank`, by its last words if it had time for any.
  void PeerDied(int rank);
  void BreakAs(const Status& reason, bool by_peer);
  // Whether `rank` has broken: cheap, and sooner than the thread learns.
  bool HasBroken(int rank) const {
    return members_[rank].segment.control()->ended.load(
               std::memory_order_acquire) != 0;
  }
  // Cheap: for loops.
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // Broken by the end of a peer, and by nothing that this rank did: what that
  // peer had done before holds.
  bool broken_by_peer() const {
    return by_peer_.load(std::memory_order_acquire);
  }
  Status status() const;
  // True once `rank` said goodbye: what it has not done it will not do.
  bool HasLeft(int rank) const {
    return left_[rank].load(std::memory_order_acquire);
  }

 private:
  void WatchLoop();
  // False once there is nothing more to learn from this peer.
  bool Listen(int rank);
  void WakeSelf();

  const std::string label_;
  const int rank_;
  const std::vector<Member>& members_;
  const BrokenFunction told_;
  Fd stop_;  // an eventfd
  std::vector<std::atomic<bool>> left_;
  std::atomic<bool> by_peer_{false};  // before broken_
  std::atomic<bool> broken_{false};
  mutable Mutex mu_;
  Status reason_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace lockstep::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_FAILURE_DETECTOR_H_
