// The implementation of AsyncWriter: the state that its callers and its thread
// share.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_ASYNC_WRITER_SHARED_H_
#define LOCKSTEP_WORKER_CHECKPOINT_ASYNC_WRITER_SHARED_H_

#include <atomic>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/checkpoint/async_writer.h"
#include "worker/checkpoint/writer.h"

namespace lockstep::worker::checkpoint {

// All state, and the thread's work. The phases:
//
//   kIdle -Begin-> kWriting -vote, chief-> kVoted -Publish-> kPublishing
//     ^               |  \-vote, other-> kIdle                  |
//     |               |                                         | done
//     +---- done -----+-----------------------------------------+
//   any but kIdle -Abandon or deadline-> kGivingUp -cleaned up-> kIdle
struct AsyncWriter::Shared {
  enum Phase { kIdle, kWriting, kVoted, kPublishing, kGivingUp };

  // The checkpoint that is written, or was written last.
  struct InFlight {
    Request request;
    MonoTime begun;
    Snapshot snapshot;
  };

  explicit Shared(Options o) : options(std::move(o)) {
    if (options.restored) verified.insert(*options.restored);
  }

  bool is_chief() const { return options.rank == 0; }
  AttemptKey attempt() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return {options.generation, flight.request.step, flight.request.id};
  }

  // The thread's work, in async_writer_thread.cc.
  void Run();
  void Write();
  StatusOr<Vote> WritePart(const WriteRequest& write, const Snapshot& taken,
                           WriteTimes* times);
  void PublishNow();
  void CleanUp();
  // All votes, or those that are there when the attempt is given up.
  std::vector<Vote> AwaitVotes(const AttemptKey& key);
  Status ReadBackAndRetain(const std::string& path, const CheckpointKey& key);

  // In async_writer.cc.
  void GiveUp(const Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void CheckDeadline() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Push(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  std::optional<Event> Pop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const Options options;
  // The thread's alone.
  std::set<CheckpointKey> verified;
  // Asked by the thread between blocks, without the lock.
  std::atomic<bool> stop_transfer{false};

  mutable Mutex mu;
  CondVar changed;
  Phase phase ABSL_GUARDED_BY(mu) = kIdle;
  // The thread has something to do in this phase.
  bool work ABSL_GUARDED_BY(mu) = false;
  bool ending ABSL_GUARDED_BY(mu) = false;
  bool ended ABSL_GUARDED_BY(mu) = false;
  InFlight flight ABSL_GUARDED_BY(mu);
  Snapshot spare ABSL_GUARDED_BY(mu);
  std::deque<Event> events ABSL_GUARDED_BY(mu);
  Counters counters ABSL_GUARDED_BY(mu);
};

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_ASYNC_WRITER_SHARED_H_
