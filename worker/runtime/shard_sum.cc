#include "worker/runtime/shard_sum.h"

#include <algorithm>
#include <span>
#include <utility>

#include "worker/runtime/gradients.h"

namespace lockstep::worker::runtime {

Status ShardSum::Fit(collective::Communicator* communicator, size_t shards) {
  Unbind();
  if (shards < 2) return OkStatus();
  const size_t elements = buckets_->whole().count;
  if (!buckets_->memory().on_device()) {
    on_host_.resize(elements);
    return OkStatus();
  }
  device_ = communicator->device_memory();
  LOCKSTEP_ASSIGN_OR_RETURN(
      on_device_, communicator->AllocateOnDevice(elements * sizeof(float)));
  return OkStatus();
}

void ShardSum::Unbind() {
  device_ = nullptr;
  on_device_ = nullptr;
  empty_ = true;
}

collective::Slice ShardSum::PartOf(const collective::Slice& slice) const {
  collective::Slice part = slice;
  part.buffer = on_device_;
  return part;
}

Status ShardSum::AddShard() {
  const collective::Slice whole = buckets_->whole();
  const bool first = std::exchange(empty_, false);
  if (on_device_ != nullptr) {
    const collective::Slice sum = PartOf(whole);
    if (first) LOCKSTEP_RETURN_IF_ERROR(device_->Clear(sum, stream_));
    return device_->Add(sum, whole, stream_);
  }
  const std::span<const float> shard(
      static_cast<const float*>(whole.buffer->data), whole.count);
  if (first) {
    std::copy(shard.begin(), shard.end(), on_host_.begin());
  } else {
    (void)AddFinite(shard, on_host_);
  }
  return OkStatus();
}

Status ShardSum::AddTo(size_t bucket) {
  if (empty_) return OkStatus();
  const collective::Slice slice = buckets_->slice(bucket);
  if (on_device_ != nullptr) {
    return device_->Add(slice, PartOf(slice), stream_);
  }
  (void)AddFinite(
      std::span(on_host_).subspan(slice.offset, slice.count),
      {static_cast<float*>(slice.buffer->data) + slice.offset, slice.count});
  return OkStatus();
}

}  // namespace lockstep::worker::runtime
