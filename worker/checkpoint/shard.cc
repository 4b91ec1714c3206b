#include "worker/checkpoint/shard.h"

#include <cstring>
#include <utility>

namespace lockstep::worker::checkpoint {
namespace {

constexpr std::string_view kBlobPrefix = "blob:";

Metadata MetadataOf(const ShardId& id) {
  return {{"format", "lockstep-shard-1"},
          {"job", id.job},
          {"generation", fmt::format("{}", id.attempt.generation)},
          {"step", fmt::format("{}", id.attempt.step)},
          {"id", fmt::format("{}", id.attempt.id)},
          {"rank", fmt::format("{}", id.rank)},
          {"world_size", fmt::format("{}", id.world_size)}};
}

}  // namespace

Status WriteShard(const ShardId& id, const Snapshot& snapshot,
                  ChecksummedFile* file) {
  std::vector<TensorView> all = snapshot.tensors();
  for (const TensorView& tensor : all) {
    if (tensor.name.starts_with(kBlobPrefix)) {
      return InvalidArgument(
          "tensor {}: names that begin with {} are reserved for blobs",
          tensor.name, kBlobPrefix);
    }
  }
  for (const auto& [name, bytes] : snapshot.blobs()) {
    TensorView blob;
    blob.name = fmt::format("{}{}", kBlobPrefix, name);
    blob.dtype = DType::kU8;
    blob.shape = {static_cast<int64_t>(bytes.size())};
    blob.data = bytes.data();
    blob.bytes = bytes.size();
    all.push_back(std::move(blob));
  }
  return WriteSafetensors(all, MetadataOf(id), file);
}

Shard::Shard(Safetensors file) : file_(std::move(file)) {
  for (const TensorView& tensor : file_.tensors()) {
    if (!tensor.name.starts_with(kBlobPrefix)) tensors_.push_back(tensor);
  }
}

StatusOr<Shard> Shard::Read(FileSystem* fs, const std::string& path,
                            const FileSums& sums, const ShardId& id) {
  // The size decides how much memory is taken: it is checked first.
  LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, fs->Stat(path));
  if (info.size != sums.size) {
    return DataLoss("{} has {} bytes, but {} were written", path, info.size,
                    sums.size);
  }
  auto bytes = std::make_unique_for_overwrite<char[]>(sums.size);
  LOCKSTEP_RETURN_IF_ERROR(ReadChecked(
      fs, path, sums, [&bytes](uint64_t offset, std::string_view block) {
        std::memcpy(bytes.get() + offset, block.data(), block.size());
      }));
  auto parsed = Safetensors::Parse(std::move(bytes), sums.size);
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  if (parsed->metadata() != MetadataOf(id)) {
    return DataLoss("{} is not the shard of rank {} at step {}", path, id.rank,
                    id.attempt.step);
  }
  return Shard(*std::move(parsed));
}

const TensorView* Shard::Find(std::string_view name) const {
  return name.starts_with(kBlobPrefix) ? nullptr : file_.Find(name);
}

std::optional<std::string_view> Shard::Blob(std::string_view name) const {
  const TensorView* blob = file_.Find(fmt::format("{}{}", kBlobPrefix, name));
  if (blob == nullptr) return std::nullopt;
  return blob->contents();
}

}  // namespace lockstep::worker::checkpoint
