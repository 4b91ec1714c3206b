#include "worker/runtime/shard_sum.h"

#include <algorithm>
#include <span>

#include "worker/runtime/gradients.h"

namespace lockstep::worker::runtime {
namespace {

std::span<float> ElementsOf(const collective::Slice& slice) {
  return {static_cast<float*>(slice.buffer->data) + slice.offset, slice.count};
}

}  // namespace

Status ShardSum::Allocate(collective::Communicator* communicator) {
  const size_t elements = buckets_->whole().count;
  if (!buckets_->memory().on_device()) {
    own_.resize(elements);
    place_ = {own_.data(), elements * sizeof(float),
              collective::MemoryKind::kHost, -1};
    buffer_ = &place_;
    return OkStatus();
  }
  StatusOr<const collective::Buffer*> buffer =
      communicator->AllocateOnDevice(elements * sizeof(float));
  if (!buffer.ok()) {
    return Annotate(buffer.status(),
                    "for the shards of ranks that are away, an elastic job has "
                    "one more copy of the gradients");
  }
  buffer_ = *buffer;
  place_ = *buffer_;
  communicator->Keep(buffer_);
  device_ = communicator->device_memory();
  return OkStatus();
}

void ShardSum::Unbind() {
  if (device_ == nullptr) return;
  device_ = nullptr;
  buffer_ = nullptr;
}

Status ShardSum::Rebind(collective::Communicator* communicator) {
  if (!allocated() || !buckets_->memory().on_device()) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(buffer_, communicator->AllocateAgain(place_));
  device_ = communicator->device_memory();
  return OkStatus();
}

void ShardSum::BeginStep() {
  empty_ = true;
  finite_ = true;
}

collective::Slice ShardSum::PartOf(const collective::Slice& slice) const {
  collective::Slice part = slice;
  part.buffer = buffer_;
  return part;
}

Status ShardSum::AddShard() {
  const collective::Slice whole = buckets_->whole();
  const collective::Slice sum = PartOf(whole);
  if (device_ != nullptr) {
    if (empty_) LOCKSTEP_RETURN_IF_ERROR(device_->Clear(sum, stream_));
    LOCKSTEP_RETURN_IF_ERROR(device_->Add(sum, whole, stream_));
  } else if (empty_) {
    std::ranges::copy(ElementsOf(whole), ElementsOf(sum).begin());
  } else {
    Add(sum, whole);
  }
  empty_ = false;
  return OkStatus();
}

Status ShardSum::AddTo(size_t bucket) {
  if (empty_) return OkStatus();
  const collective::Slice slice = buckets_->slice(bucket);
  if (device_ != nullptr) return device_->Add(slice, PartOf(slice), stream_);
  Add(slice, PartOf(slice));
  return OkStatus();
}

void ShardSum::Add(const collective::Slice& to, const collective::Slice& from) {
  finite_ = AddFinite(ElementsOf(from), ElementsOf(to)) && finite_;
}

}  // namespace lockstep::worker::runtime
