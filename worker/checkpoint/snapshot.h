// A copy of a rank's state in host memory. Training only waits for the copy.
//
// Keeps its memory between uses: the first copy pays for the pages, the later
// ones are plain copies. Thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_SNAPSHOT_H_
#define LOCKSTEP_WORKER_CHECKPOINT_SNAPSHOT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/tensor_view.h"

namespace lockstep::worker::checkpoint {

class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(Snapshot&& other) noexcept { *this = std::move(other); }
  Snapshot& operator=(Snapshot&& other) noexcept;

  // Replaces the content by copies of `tensors` and drops blobs. A replica that
  // is not the chief passes no tensors. InvalidArgument names a tensor whose
  // size does not fit its shape; ResourceExhausted if memory for the copy is
  // missing. After an error the snapshot is empty.
  Status Copy(std::span<const TensorView> tensors);

  // The same for state that does not lie in host memory: lays out room for
  // tensors like `tensors` (their `data` is ignored) and the caller fills
  // mutable_data(i) for each i, in the order given, by its own copies.
  Status Allocate(std::span<const TensorView> tensors);
  void* mutable_data(size_t i);

  // Opaque bytes: random number generator, optimizer scalars, data cursor.
  void AddBlob(std::string name, std::string bytes);

  const std::vector<TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& blobs() const { return blobs_; }
  uint64_t bytes() const;
  // Forgets the contents, keeps the memory.
  void Clear();

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<char, Free> memory_;
  uint64_t capacity_ = 0;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> blobs_;
};

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_SNAPSHOT_H_
