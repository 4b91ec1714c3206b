// Runs operations, in order, over the shared memory of layout.h.
//
// All work is done by the caller's thread, in Start, Poll and Wait; several
// operations may be in flight. Only Wait waits.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_ENGINE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_ENGINE_H_

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/shm/failure_detector.h"
#include "worker/collective/shm/layout.h"
#include "worker/collective/shm/ranks.h"
#include "worker/collective/shm/rendezvous.h"
#include "worker/collective/shm/shared_reducer.h"
#include "worker/collective/shm/started.h"
#include "worker/collective/shm/streamer.h"
#include "worker/collective/shm/waiter.h"

namespace lockstep::worker::collective::shm {

// The place of a slice.
struct Placement {
  // It is in the caller's memory, which peers cannot see.
  bool is_private = false;
  uint64_t place = 0;  // in this rank's segment, unless private
  unsigned char* local = nullptr;
};

class Engine {
 public:
  // All outlive it; `group` and `detector` are this rank's.
  Engine(const CommunicatorOptions& options, const Group& group,
         FailureDetector* detector);

  // `operation` passed CheckOperation. Returns its number, or the reason for
  // which the communicator is broken.
  StatusOr<uint64_t> Start(const Operation& operation,
                           const Placement& placement);
  // True once Wait would return at once.
  bool Poll(uint64_t number);
  // Breaks the communicator at the deadline, and when an operation takes longer
  // than CommunicatorOptions::operation_timeout, counted from the first wait
  // for it.
  Status Wait(uint64_t number, MonoTime deadline);

  // Communicator::CurrentWait.
  PeerWait current_wait() const { return waiter_.current_wait(); }

 private:
  struct Task {
    Operation operation;
    Placement placement;
    Started started;
    bool small = false;
    bool has_data = false;
    uint32_t slot = 0;  // when small and has_data
    // For the front only.
    int arrived = 0;  // ranks below it have
    bool streamed = false;
  };

  void Progress();
  bool PostNext();
  void Post(Task* task);
  bool AllDone(uint64_t number);
  // Each: true when its part is over; else the waiter knows what is missing, or
  // the communicator is broken.
  bool Advance(Task* task);
  bool Arrive(Task* task);
  bool Accept(Task* task, int rank);
  void Finish(Task* task);

  const std::string label_;
  FailureDetector& detector_;
  Ranks ranks_;
  Waiter waiter_;
  SharedReducer shared_;
  Streamer streamer_;

  std::deque<Task> tasks_;  // from number ranks_.front() on
  uint64_t posted_ = 0;
  uint64_t least_done_ = 0;  // what every peer had reached when last looked
  uint64_t small_posted_ = 0;
  // 1 + the operation that used the slot last.
  std::array<uint64_t, kSmallSlots> slot_used_{};
  std::vector<Started> peers_;    // what each rank started as the front
  std::vector<uint64_t> mapped_;  // of each segment, up to here
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_ENGINE_H_
