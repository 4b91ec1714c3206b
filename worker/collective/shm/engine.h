// Moves operations on, in order, over the shared memory of layout.h.
//
// By the caller's thread only, in Start, Poll and Wait; several operations may
// be in flight. Never waits but in Wait.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_ENGINE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_ENGINE_H_

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/reduce.h"
#include "worker/collective/shm/chunks.h"
#include "worker/collective/shm/failure_detector.h"
#include "worker/collective/shm/rendezvous.h"
#include "worker/collective/shm/started.h"
#include "worker/collective/shm/store_policy.h"

namespace lockstep::shm {

// Where a slice lies.
struct Placement {
  // In memory of the caller's, which peers cannot see.
  bool is_private = false;
  uint64_t place = 0;  // in this rank's segment, unless private
  unsigned char* local = nullptr;
};

class Engine {
 public:
  // All outlive it; `group` and `detector` are of this rank.
  Engine(const CommunicatorOptions& options, const Group* group,
         FailureDetector* detector);

  // `operation` passed CheckOperation. Returns its number. Broken: its reason.
  StatusOr<uint64_t> Start(const Operation& operation,
                           const Placement& placement);
  // True once Wait would return at once.
  bool Poll(uint64_t number);
  // Breaks the detector at the deadline, and where an operation takes longer
  // than CommunicatorOptions::operation_timeout from when it is first rested
  // for.
  Status Wait(uint64_t number, MonoTime deadline);

 private:
  struct Task {
    Operation operation;
    Placement placement;
    Started started;
    bool small = false;
    bool has_data = false;
    uint32_t slot = 0;  // when small and has_data
    // Of the front only.
    int arrived = 0;  // ranks below it have
    bool streamed = false;
    Chunks chunks;
    bool no_more_chunks = false;
    Blocks blocks;
    uint64_t given = 0;
    uint64_t reduced = 0;
    uint64_t taken = 0;
  };
  // What the front, or its posting, needs to go on.
  struct Need {
    enum Kind { kArrival, kCompletion, kDone, kGiven, kReduced, kTaken };
    Kind kind = kArrival;
    int rank = -1;       // -1, for kCompletion: all who work
    uint64_t value = 0;  // kCompletion: at least this; else more than it
  };

  Control* control(int rank) const {
    return group_.members[rank].segment.control();
  }
  Entry& entry(int rank) const {
    return control(rank)->ring[finished_ % kRing];
  }
  unsigned char* ShareOf(int rank) const {
    return group_.members[rank].segment.At(peers_[rank].place);
  }

  void Progress();
  bool PostNext();
  void Post(Task* task);
  bool AllDone(uint64_t number);
  // Each: true when its part is over; else need_ says what is missing, or the
  // detector is broken.
  bool Advance(Task* task);
  bool Arrive(Task* task);
  bool Accept(Task* task, int rank);
  void RunSmall(const Task& task);
  bool RunShared(Task* task);
  void DoChunk(const Task& task, const Chunk& chunk);
  bool RunStreamed(Task* task);
  bool Give(Task* task);
  bool ReducePiece(Task* task);
  bool Take(Task* task);
  // The piece of `part` in the slot of a block of the front.
  unsigned char* Staged(int rank, uint64_t block, int part) const;
  bool AllHave(Need::Kind kind, uint64_t block);
  void Finish(Task* task);

  void Kick(uint32_t code);
  bool Met(const Need& need) const;
  static uint32_t CodeOf(const Need& need);
  // Until need_ is met or the detector is broken; false at the deadline.
  bool Rest(MonoTime deadline);
  bool Sleep(MonoTime deadline);
  bool SleepLong(MonoTime deadline);
  // Tells the others where this rank runs.
  void NoteProcessor();
  // Whether need_ may come true while this rank keeps its processor.
  bool MaySpin() const;
  std::string WhomWeWaitFor() const;

  const std::string label_;
  const Duration timeout_;
  const int me_;
  const int size_;
  const Group& group_;
  FailureDetector& detector_;
  const InstructionSet instructions_;
  const bool spins_;
  const Blocks::Shape stage_;
  uint32_t processor_ = 0;  // 1 + the one that was noted; 0: none

  std::deque<Task> tasks_;  // from number finished_ on
  uint64_t finished_ = 0;
  uint64_t posted_ = 0;
  uint64_t least_done_ = 0;  // what every peer had reached when last looked
  uint64_t small_posted_ = 0;
  // 1 + the operation that used the slot last.
  std::array<uint64_t, kSmallSlots> slot_used_{};
  Need need_;
  // Of the front, once it has been rested for.
  bool rested_ = false;
  MonoTime backstop_;
  std::vector<Started> peers_;    // of the front
  std::vector<uint64_t> mapped_;  // of each segment, up to here
  std::vector<const void*> ins_;  // by rank
  std::vector<void*> outs_;
  uint64_t streamed_ = 0;     // blocks of operations before the front
  StorePolicy store_policy_;  // of pieces that are given
  bool stage_mapped_ = false;
};

}  // namespace lockstep::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_ENGINE_H_
