#include "worker/checkpoint/snapshot.h"

#include <cstdlib>
#include <cstring>

namespace lockstep::worker::checkpoint {
namespace {

// A cache line: what wide vector copies and pinned transfers like.
constexpr uint64_t kAlignment = 64;

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void Snapshot::Free::operator()(void* p) const { std::free(p); }

Snapshot& Snapshot::operator=(Snapshot&& other) noexcept {
  memory_ = std::move(other.memory_);
  capacity_ = std::exchange(other.capacity_, 0);
  tensors_ = std::exchange(other.tensors_, {});
  blobs_ = std::exchange(other.blobs_, {});
  return *this;
}

Status Snapshot::Allocate(std::span<const TensorView> tensors) {
  Clear();
  uint64_t total = 0;
  for (const TensorView& tensor : tensors) {
    LOCKSTEP_RETURN_IF_ERROR(CheckTensor(tensor));
    total += RoundUp(tensor.bytes);
  }
  if (total > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, total)));
    if (memory_ == nullptr) {
      return ResourceExhausted(
          "not enough host memory for a snapshot of {} bytes: skipping the "
          "checkpoint",
          total);
    }
    capacity_ = total;
  }
  uint64_t offset = 0;
  tensors_.assign(tensors.begin(), tensors.end());
  for (TensorView& tensor : tensors_) {
    tensor.data = memory_.get() + offset;
    offset += RoundUp(tensor.bytes);
  }
  return OkStatus();
}

Status Snapshot::Copy(std::span<const TensorView> tensors) {
  LOCKSTEP_RETURN_IF_ERROR(Allocate(tensors));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].bytes == 0) continue;
    std::memcpy(mutable_data(i), tensors[i].data, tensors[i].bytes);
  }
  return OkStatus();
}

void* Snapshot::mutable_data(size_t i) {
  return const_cast<void*>(tensors_[i].data);
}

void Snapshot::AddBlob(std::string name, std::string bytes) {
  blobs_[std::move(name)] = std::move(bytes);
}

uint64_t Snapshot::bytes() const {
  uint64_t total = 0;
  for (const TensorView& tensor : tensors_) total += tensor.bytes;
  for (const auto& [name, blob] : blobs_) total += blob.size();
  return total;
}

void Snapshot::Clear() {
  tensors_.clear();
  blobs_.clear();
}

}  // namespace lockstep::worker::checkpoint
