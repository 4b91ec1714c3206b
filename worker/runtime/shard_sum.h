// The sum of the shards that a member has computed before its last one, where
// all members then all-reduce the sums (bucket_reduction.h). It lies where the
// gradients do: on the host, or on the device.
//
// Thread-compatible; for the reducer's thread.
#ifndef LOCKSTEP_WORKER_RUNTIME_SHARD_SUM_H_
#define LOCKSTEP_WORKER_RUNTIME_SHARD_SUM_H_

#include <cstddef>
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

  // For a member with `shards` shards. Memory of a device is the
  // communicator's, which the buckets are in already.
  Status Fit(collective::Communicator* communicator, size_t shards);
  void Unbind();
  void BeginStep() { empty_ = true; }
  // A shard is complete: adds its gradients. On a device in turn with the
  // stream, so that the next shard's may follow there at once.
  Status AddShard();
  // The bucket of the last shard grows by the sum of those before, on a device
  // in turn with the stream.
  Status AddTo(size_t bucket);

 private:
  // The elements of the sum that belong to `slice` of the buckets.
  collective::Slice PartOf(const collective::Slice& slice) const;

  GradientBuckets* const buckets_;
  const collective::Stream stream_;
  collective::DeviceMemory* device_ = nullptr;
  const collective::Buffer* on_device_ = nullptr;
  std::vector<float> on_host_;
  bool empty_ = true;  // of this step
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SHARD_SUM_H_
