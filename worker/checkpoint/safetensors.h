// The safetensors format (github.com/huggingface/safetensors): 8 bytes of
// little-endian length, a JSON header of that length padded with spaces to 8
// bytes, the data of all tensors without gaps.
//
// The one format here: model.safetensors is such a file and so is a shard of
// a checkpoint, so that any tool that reads safetensors reads both.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_
#define LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/checkpoint/checksum.h"
#include "worker/checkpoint/tensor_view.h"

namespace lockstep::worker::checkpoint {

inline constexpr uint64_t kMaxHeaderBytes = 32 << 20;
inline constexpr size_t kMaxTensors = 200'000;

using Metadata = std::map<std::string, std::string>;

// Length and header, and `tensors` in the order in which their data follows:
// wide types first, so that each tensor is aligned to its type; otherwise as
// given. InvalidArgument for a bad tensor, two of one name, or metadata that
// is not UTF-8.
struct SafetensorsLayout {
  std::string header;
  std::vector<const TensorView*> order;
};
StatusOr<SafetensorsLayout> LayOutSafetensors(
    std::span<const TensorView> tensors, const Metadata& metadata);

// Streams to `file`; the caller syncs.
Status WriteSafetensors(std::span<const TensorView> tensors,
                        const Metadata& metadata, ChecksummedFile* file);

// Writes `path` so that it is there whole and durable, or not at all: to
// PATH.tmp, fsync, rename, fsync of the directory.
Status SaveSafetensors(FileSystem* fs, const std::string& path,
                       std::span<const TensorView> tensors,
                       const Metadata& metadata);

// A whole file in memory. Views point into it and live as long as it does;
// moving it keeps them valid. Files that others wrote may hold tensors that
// are not aligned to their type: copy, don't cast.
class Safetensors {
 public:
  // DataLoss for a file that does not keep the format: the header is bounded
  // and checked, offsets cover the data exactly.
  static StatusOr<Safetensors> Parse(std::unique_ptr<char[]> bytes,
                                     uint64_t size);
  static StatusOr<Safetensors> Load(FileSystem* fs, const std::string& path);

  // In the order of their data.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  // Null where there is none.
  const TensorView* Find(std::string_view name) const;

 private:
  std::unique_ptr<char[]> bytes_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  Metadata metadata_;
};

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_
