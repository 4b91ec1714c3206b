// Reduces each bucket by the plan "shards=N" (docs/design/recovery.md, "Smaller
// for a while"): each element is the sum over shards 0 to N - 1, from the first
// to the last, in float32, at each number of members.
//
// A bucket is cut in equal parts, one for each member of the communicator. An
// all-to-all gives member p part p of all shards, p sums it, and an all-gather
// gives the result to all. A member's r-th shard goes in round r, in which
// members with fewer shards send nothing. All members start, in this order: the
// buckets of round 0, those of each later round, the tail, and the all-gathers.
// The buckets of a member's last shard start during its backward pass; those of
// its shards before, which are copied, when the shard ends.
//
// Where the communicator has no all-to-all, all members gather whole buckets
// instead: more to send, the same sums. A member that is alone sends nothing.
#ifndef LOCKSTEP_WORKER_RUNTIME_SHARD_REDUCTION_H_
#define LOCKSTEP_WORKER_RUNTIME_SHARD_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/gradient_reduction.h"
#include "worker/runtime/membership.h"

namespace lockstep::worker::runtime {

class ShardReduction final : public GradientReduction {
 public:
  // `buckets` are made for shards. Before Rebind it has no communicator, and
  // takes gradients only.
  ShardReduction(Progress* progress, std::unique_ptr<GradientBuckets> buckets,
                 int world_size, Duration operation_timeout);

  // So much that the loss of one rank needs no more, but for its shard where no
  // copy is kept for one (below). Rebind allocates the communicator's memory.
  Status Allocate(bool with_norm) override;
  void Unbind() override;
  Status Rebind(collective::Communicator* communicator,
                const Membership& membership) override;
  void BeginStep(int64_t step) override;
  Status EndShard() override;
  StatusOr<bool> StartRest() override;
  Status StartTail() override { return StartTailAlone(); }
  Status WaitAll(MonoTime arrived) override;
  // Of N parts, added up from the first to the last: equal bits for any number
  // of members.
  StatusOr<double> Norm(MonoTime arrived) override;

 private:
  // The exchange of one bucket in one round.
  struct Exchange {
    std::vector<collective::PeerPart> sends;
    std::vector<collective::PeerPart> receives;
    // In place of an all-to-all: the whole buckets of all members.
    std::vector<float> gathered;
    // Refers to the others, so it goes first.
    std::vector<std::unique_ptr<collective::Work>> works;
  };
  // Of one bucket.
  struct Memory {
    // This member's part of each shard, one behind the other. It may be larger.
    std::vector<float> rows;
    // By round, but for the last own shard: copies of whole buckets. Ranks 0
    // and 1 always have one: they are the first that get another rank's shard.
    std::vector<std::vector<float>> copies;
    std::vector<Exchange> exchanges;  // by round
  };

  bool Starts() const {
    return started_ < memory_.size() && buckets_->states().full(started_);
  }
  Status StartFull() override;
  bool IsUnderWay() const override;
  void PollInline() override;
  bool alone() const { return membership_.size() == 1; }
  // The memory of the bucket for the membership. Memory that is there stays:
  // the first use of new memory takes longer than the step that waits for it.
  void AllocateFor(size_t bucket);
  // Elements of a member's part of the bucket.
  size_t PartOf(size_t bucket) const;
  size_t PartOf(size_t bucket, size_t members) const;
  // Of this rank's shard of `round`; null: it has none.
  float* ShardMemory(size_t bucket, size_t round);
  Status StartExchange(size_t bucket, size_t round);
  Status StartGathered(size_t bucket, size_t round, const float* own);
  // Takes this member's part of all shards out of what was gathered.
  void TakeGathered(size_t bucket, size_t round);
  Status StartLaterRounds();
  Status SumBucket(size_t bucket);

  bool with_norm_ = false;
  const collective::Buffer* any_ = nullptr;   // AnyMemory's
  const collective::Buffer* norm_ = nullptr;  // N numbers
  std::vector<Memory> memory_;                // by bucket

  // Of the step under way.
  bool exchanged_ = false;  // All buckets of all rounds have started.
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SHARD_REDUCTION_H_
