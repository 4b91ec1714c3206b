#include "worker/process_group/staging.h"

#include <algorithm>
#include <bit>
#include <new>

namespace lockstep::worker::process_group {
namespace {

constexpr size_t kLeastBytes = size_t{256} << 10;

}  // namespace

StatusOr<const collective::Buffer*> Staging::Get(size_t bytes) {
  if (buffer_ != nullptr && buffer_->bytes >= bytes) return buffer_;
  // Doubled, since the communicator frees nothing before its end.
  LOCKSTEP_ASSIGN_OR_RETURN(
      buffer_,
      communicator_->Allocate(std::bit_ceil(std::max(bytes, kLeastBytes))));
  return buffer_;
}

StatusOr<char*> KeptMemory::Get(size_t bytes) {
  if (bytes > bytes_) {
    bytes_ = 0;
    data_.reset(new (std::nothrow) char[bytes]);
    if (data_ == nullptr) {
      return ResourceExhausted("no memory for a copy of {} bytes", bytes);
    }
    bytes_ = bytes;
  }
  return data_.get();
}

void KeptMemory::Trim() {
  if (bytes_ <= kChunkBytes) return;
  data_.reset();
  bytes_ = 0;
}

}  // namespace lockstep::worker::process_group
