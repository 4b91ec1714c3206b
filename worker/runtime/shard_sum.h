// The sum of the shards that a member has computed before its last one, where
// all members then all-reduce the sums (bucket_reduction.h). It lies where the
// gradients do: on the host, or on the device. Its memory is there from the
// start, so that a recovery needs no more, and stays in a recovery, because the
// stream may still use it.
//
// Thread-compatible; for the reducer's thread.
#ifndef LOCKSTEP_WORKER_RUNTIME_SHARD_SUM_H_
#define LOCKSTEP_WORKER_RUNTIME_SHARD_SUM_H_

#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/gradient_buckets.h"

namespace lockstep::worker::runtime {

class ShardSum {
 public:
  // Borrows the buckets. `stream`: where gradients on a device are made.
  ShardSum(GradientBuckets* buckets, collective::Stream stream)
      : buckets_(buckets), stream_(stream) {}

  // Without it no shard can be added. The communicator's errors.
  Status Allocate(collective::Communicator* communicator);
  // A recovery, as for GradientMemory.
  void Unbind();
  Status Rebind(collective::Communicator* communicator);

  void BeginStep();
  // A shard is complete: adds its gradients. On a device in turn with the
  // stream, so that the next shard's may follow there at once.
  Status AddShard();
  // The bucket of the last shard grows by the sum of those before, on a device
  // in turn with the stream.
  Status AddTo(size_t bucket);
  // False: a sum of this step, on the host, was not finite.
  bool finite() const { return finite_; }

 private:
  bool allocated() const { return place_.bytes > 0; }
  // The elements of the sum that belong to `slice` of the buckets.
  collective::Slice PartOf(const collective::Slice& slice) const;
  void Add(const collective::Slice& to, const collective::Slice& from);

  GradientBuckets* const buckets_;
  const collective::Stream stream_;
  collective::DeviceMemory* device_ = nullptr;  // Null: the sum is on the host.
  std::vector<float> own_;                      // On the host.
  collective::Buffer place_;                    // As it was at first.
  const collective::Buffer* buffer_ = nullptr;
  // Of this step.
  bool empty_ = true;
  bool finite_ = true;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SHARD_SUM_H_
