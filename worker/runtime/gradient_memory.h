// The memory of a reducer's gradients, and of its tail (step_tail.h).
//
// Gradients are in memory of the communicator, which gives it again in the next
// one. For shards (shard_reduction.h) they are in memory of this object: it
// stays where it is in any communicator, and without one. Each bucket then has
// room behind it for equal parts at each number of members.
//
// On a device, and for shards, the tail has memory of its own, in the
// communicator. So it has for shards over nccl, where gradients are the
// communicator's, without room: sums have no parts there.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_RUNTIME_GRADIENT_MEMORY_H_
#define LOCKSTEP_WORKER_RUNTIME_GRADIENT_MEMORY_H_

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/bucket_plan.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::runtime {

// Where the tail is: behind the last gradient, or apart.
struct TailPlace {
  std::span<float> words;
  collective::Slice slice;
};

class GradientMemory {
 public:
  // Buckets and parts begin at multiples of this, in bytes.
  static constexpr size_t kAlignment = 64;

  // Borrows the communicator. `shards` is their number, or 0. With shards and
  // without a communicator, Rebind brings one.
  GradientMemory(collective::Communicator* communicator, int shards,
                 bool on_device)
      : communicator_(communicator),
        shards_(shards),
        on_device_(on_device),
        room_behind_(communicator == nullptr
                         ? static_cast<size_t>(shards) * kAlignment
                         : 0) {}

  // Allocates for the buckets of `plan`. The communicator's errors.
  Status Allocate(const collective::BucketPlan& plan);
  // A recovery: allocates in another communicator, at the same addresses. The
  // old one is gone. Memory of the host becomes zero. FailedPrecondition: the
  // memory is elsewhere.
  Status Rebind(collective::Communicator* communicator);
  // Makes it all zero, but on a device, where the caller does.
  void Clear();

  // Ranks of the job.
  int size() const { return shards_ > 0 ? shards_ : communicator_->size(); }
  bool on_device() const { return on_device_; }
  bool for_shards() const { return shards_ > 0; }
  bool in_communicator() const { return room_behind_ == 0; }
  // The tail is not in the last bucket.
  bool tail_apart() const { return on_device_ || shards_ > 0; }
  // In bytes.
  size_t room_behind() const { return room_behind_; }
  size_t BytesOf(const collective::BucketPlan& plan) const;
  const collective::Buffer* buffer() const { return buffer_; }
  char* data() const { return static_cast<char*>(buffer_->data); }
  // The host's, writable. Where it is in the last bucket, SetTail says where.
  const TailPlace& tail() const { return tail_; }
  void SetTail(size_t offset_bytes, size_t words);

 private:
  Status AllocateTail();

  collective::Communicator* communicator_;  // Null: none yet.
  const int shards_;
  const bool on_device_;
  const size_t room_behind_;
  const collective::Buffer* buffer_ = nullptr;
  collective::Buffer place_;  // As it was at first.
  std::vector<float> own_;
  size_t tail_words_ = 0;
  TailPlace tail_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_GRADIENT_MEMORY_H_
