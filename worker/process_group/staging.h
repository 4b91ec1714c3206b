// Memory of a group in which lists of spans become one slice.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_STAGING_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::process_group {

// Longer operations go through the staging memory in pieces of this size. All
// ranks cut at the same elements, whatever their spans.
inline constexpr size_t kChunkBytes = size_t{32} << 20;

// Memory of the communicator, which is reduced in place. It is kept as long as
// the communicator: at most twice kChunkBytes. Not synchronised.
class Staging {
 public:
  // Borrowed.
  explicit Staging(collective::Communicator* communicator)
      : communicator_(communicator) {}

  // Returns a buffer of at least `bytes`, which are at most kChunkBytes or, in
  // a group of very many ranks, a few elements of each. Its content is
  // undefined. The buffer before must not be in use. ResourceExhausted.
  StatusOr<const collective::Buffer*> Get(size_t bytes);

 private:
  collective::Communicator* const communicator_;
  const collective::Buffer* buffer_ = nullptr;
};

// Ordinary memory for copies, kept for the next operation. Not synchronised.
class KeptMemory {
 public:
  // Returns at least `bytes` with undefined content; those before are gone.
  // ResourceExhausted.
  StatusOr<char*> Get(size_t bytes);
  // Frees more than kChunkBytes.
  void Trim();

 private:
  std::unique_ptr<char[]> data_;
  size_t bytes_ = 0;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_STAGING_H_
