// Shows other threads what one thread waits for, in one word: ranks below 2^20
// - 2, and the lower 44 bits of the number of waits.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_PEER_WAIT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_PEER_WAIT_H_

#include <atomic>
#include <cstdint>

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// One thread sets it; any thread gets it.
class CurrentPeerWait {
 public:
  // A wait for `rank` begins; -1: not known for which.
  void Begin(int rank) {
    ++waits_;
    Set(kWaits + 1 + rank);
  }
  // The wait goes on, for `rank`.
  void SetPeer(int rank) { Set(kWaits + 1 + rank); }
  void End() { Set(0); }

  PeerWait Get() const {
    const uint64_t word = word_.load(std::memory_order_relaxed);
    const uint64_t state = word % kStates;
    if (state < kWaits) return {false, -1, word / kStates};
    return {true, static_cast<int>(state - kWaits) - 1, word / kStates};
  }

 private:
  static constexpr uint64_t kStates = uint64_t{1} << 20;
  static constexpr uint64_t kWaits = 1;

  void Set(uint64_t state) {
    word_.store(waits_ * kStates + state, std::memory_order_relaxed);
  }

  uint64_t waits_ = 0;  // The setting thread's.
  std::atomic<uint64_t> word_{0};
};

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_PEER_WAIT_H_
