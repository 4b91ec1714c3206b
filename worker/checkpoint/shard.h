// The file that a rank writes: a safetensors file. Blobs are U8 tensors called
// "blob:NAME"; __metadata__ has the job, attempt and rank it belongs to, so
// that a file in the wrong place is detected.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_SHARD_H_
#define LOCKSTEP_WORKER_CHECKPOINT_SHARD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/checksum.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/snapshot.h"

namespace lockstep::worker::checkpoint {

// The rank and the checkpoint that a shard belongs to.
struct ShardId {
  std::string job;
  AttemptKey attempt;
  uint32_t rank = 0;
  uint32_t world_size = 0;

  bool operator==(const ShardId&) const = default;
};

Status WriteShard(const ShardId& id, const Snapshot& snapshot,
                  ChecksummedFile* file);

// A shard in memory, checked. Tensors are in the order of their data, which
// puts wide types first: match them by name.
class Shard {
 public:
  // Checks every CRC before it uses a byte. DataLoss: the file does not fit
  // `sums`, or is not the shard `id`.
  static StatusOr<Shard> Read(FileSystem* fs, const std::string& path,
                              const FileSums& sums, const ShardId& id);

  const std::vector<TensorView>& tensors() const { return tensors_; }
  // Null: there is none.
  const TensorView* Find(std::string_view name) const;
  std::optional<std::string_view> Blob(std::string_view name) const;

 private:
  explicit Shard(Safetensors file);

  Safetensors file_;
  std::vector<TensorView> tensors_;
};

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_SHARD_H_
