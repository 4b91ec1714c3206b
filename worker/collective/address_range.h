// A range of addresses that outlives communicators.
//
// Trainers hold views of their gradients. With a range, the memory of each
// generation is mapped over that of the one before, at the same addresses. The
// views stay valid, and a member of an older generation that thaws writes into
// a file that is no longer mapped. Between generations the range is ordinary
// memory of zeros, so a view never points at unmapped memory.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_ADDRESS_RANGE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_ADDRESS_RANGE_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::worker::collective {

// Bytes for the gradients of all ranks of a process, out of the 128 TiB that a
// process has. The thread sanitizer leaves less, and tests have all ranks in
// one process.
#if defined(__SANITIZE_THREAD__)
inline constexpr size_t kMostAddresses = size_t{4} << 30;
#else
inline constexpr size_t kMostAddresses = size_t{16} << 40;
#endif

// Memory of a backend that no range can hold, between two communicators.
class KeptMemory {
 public:
  virtual ~KeptMemory() = default;
  // Waits until the communicator before has given it back. False: it has not at
  // `deadline`, because its device does not stop.
  virtual bool AwaitFree(MonoTime deadline) = 0;
};

// Used by one thread. Must outlive the communicators that it is given to.
class AddressRange {
 public:
  // As many addresses as this host has memory, or less where limits want it.
  // They cost nothing until they are used. ResourceExhausted.
  static StatusOr<std::unique_ptr<AddressRange>> Reserve();
  // Reserves `bytes`, a multiple of 2 MiB, where 2 MiB pages may begin.
  static StatusOr<std::unique_ptr<AddressRange>> Reserve(size_t bytes);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  unsigned char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Maps `file` from `offset` on, shared, over the beginning of the range: at
  // most `bytes`. It replaces what was there. The mapping is not inherited by
  // fork and not in core dumps. FailedPrecondition while another communicator
  // has the range mapped: it would go on in the new one's memory.
  Status Map(int file, off_t offset, size_t bytes);
  // The range becomes the caller's until Clear, as the ordinary zeroed memory
  // that it is. False: another communicator has it.
  bool Take() { return !std::exchange(taken_, true); }
  // Makes the range ordinary zeroed memory again.
  void Clear();

  // Null where no communicator needs it. It is gone with the range.
  std::shared_ptr<KeptMemory>& kept() { return kept_; }

 private:
  AddressRange(unsigned char* data, size_t bytes)
      : data_(data), bytes_(bytes) {}

  unsigned char* const data_;
  const size_t bytes_;
  bool taken_ = false;
  std::shared_ptr<KeptMemory> kept_;
};

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_ADDRESS_RANGE_H_
