#include "worker/process_group/staging.h"

#include <algorithm>
#include <bit>

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

}  // namespace lockstep::worker::process_group
