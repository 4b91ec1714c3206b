// The buffers of a communicator whose memory is ordinary host memory.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HOST_MEMORY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HOST_MEMORY_H_

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/address_range.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// Owns its buffers until it is destroyed; they lie in `range`, from its
// beginning, as long as there is one with room. Not synchronised.
class HostMemory {
 public:
  // `range` is borrowed and may be null. It is taken with the first buffer.
  explicit HostMemory(AddressRange* range = nullptr) : range_(range) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  // Zeroed pages. ResourceExhausted when the system gives none.
  StatusOr<const Buffer*> Allocate(size_t bytes);
  // The caller's memory as AnyHostMemory; always the same.
  const Buffer* Any() const { return &any_; }
  // Compares the pointer only: safe with any value.
  bool Owns(const Buffer* buffer) const;

 private:
  // Null: the range has no room left, or another has it.
  void* TakeFromRange(size_t bytes);

  AddressRange* const range_;
  bool has_range_ = false;  // Taken.
  size_t used_ = 0;         // Of the range.
  std::vector<std::unique_ptr<Buffer>> buffers_;
  const Buffer any_ = AnyHostMemory();
};

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HOST_MEMORY_H_
