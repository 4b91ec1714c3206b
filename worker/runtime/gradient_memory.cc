#include "worker/runtime/gradient_memory.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "worker/runtime/step_tail.h"

namespace lockstep::worker::runtime {

size_t GradientMemory::BytesOf(const collective::BucketPlan& plan) const {
  size_t bytes = 0;
  for (const collective::BucketLayout& bucket : plan.buckets) {
    bytes += bucket.bytes + room_behind_;
  }
  return bytes;
}

Status GradientMemory::Allocate(const collective::BucketPlan& plan) {
  const size_t bytes = BytesOf(plan);
  tail_words_ = shards_ > 0 ? ShardTailWords(shards_) : plan.control_words;
  if (!in_communicator()) {
    own_.resize((bytes + kAlignment) / sizeof(float));
    void* at = own_.data();
    size_t room = bytes + kAlignment;
    std::align(kAlignment, bytes, at, room);
    place_ = {at, bytes, collective::MemoryKind::kHost, -1};
    buffer_ = &place_;
    return OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(buffer_,
                            on_device_ ? communicator_->AllocateOnDevice(bytes)
                                       : communicator_->Allocate(bytes));
  place_ = *buffer_;
  return AllocateTail();
}

Status GradientMemory::AllocateTail() {
  if (!tail_apart()) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(
      const collective::Buffer* const buffer,
      communicator_->Allocate(tail_words_ * sizeof(float)));
  tail_ = {{static_cast<float*>(buffer->data), tail_words_},
           {buffer, 0, tail_words_, collective::DataType::kFloat32}};
  return OkStatus();
}

Status GradientMemory::Rebind(collective::Communicator* communicator) {
  communicator_ = communicator;
  std::fill(own_.begin(), own_.end(), 0.0f);
  if (in_communicator()) {
    LOCKSTEP_ASSIGN_OR_RETURN(buffer_, communicator->AllocateAgain(place_));
  }
  if (!tail_apart()) tail_.slice.buffer = buffer_;
  return AllocateTail();
}

void GradientMemory::Clear() {
  if (!on_device_) std::memset(buffer_->data, 0, buffer_->bytes);
}

void GradientMemory::SetTail(size_t offset_bytes, size_t words) {
  tail_.words = {reinterpret_cast<float*>(data() + offset_bytes), words};
  tail_.slice = {buffer_, offset_bytes / sizeof(float), words,
                 collective::DataType::kFloat32};
}

}  // namespace lockstep::worker::runtime
