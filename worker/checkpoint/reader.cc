#include "worker/checkpoint/reader.h"

#include "worker/checkpoint/cleanup.h"

namespace lockstep::worker::checkpoint {
namespace {

// Returns whether the bytes are damaged. EIO and ESTALE (Internal) may mean an
// unreachable server instead.
bool IsDamage(const Status& status) {
  switch (status.code()) {
    case StatusCode::kDataLoss:
    case StatusCode::kNotFound:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kInvalidArgument:
      return true;
    default:
      return false;
  }
}

}  // namespace

StatusOr<Checkpoint> Checkpoint::Open(FileSystem* fs, const std::string& path) {
  const auto key = ParseCheckpointName(BaseName(path));
  if (!key) return InvalidArgument("{} is not the name of a checkpoint", path);
  const std::string manifest_path = JoinPath(path, kManifestName);
  auto text = fs->Read(manifest_path, kMaxManifestBytes);
  if (text.status().code() == StatusCode::kResourceExhausted &&
      fs->Exists(manifest_path) &&
      fs->Stat(manifest_path)->size > kMaxManifestBytes) {
    return DataLoss("{} is too large for a manifest", manifest_path);
  }
  if (!text.ok()) return text.status();
  auto manifest = DecodeManifest(*text);
  if (!manifest.ok()) return Annotate(manifest.status(), path);
  if (manifest->key() != *key) {
    return DataLoss("{} is the manifest of {}", manifest_path,
                    CheckpointName(manifest->key()));
  }
  Checkpoint checkpoint(fs, path, *std::move(manifest));
  for (uint32_t rank = 0; rank < checkpoint.manifest_.world_size; ++rank) {
    const std::string shard = checkpoint.ShardPath(rank);
    LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, fs->Stat(shard));
    const uint64_t want = checkpoint.manifest_.shards[rank].size;
    if (info.is_directory || info.size != want) {
      return DataLoss("{} has {} bytes, but {} were written", shard, info.size,
                      want);
    }
  }
  return checkpoint;
}

std::string Checkpoint::ShardPath(uint32_t rank) const {
  return JoinPath(path_, ShardName(rank, manifest_.world_size));
}

StatusOr<Shard> Checkpoint::ReadShard(uint32_t rank) const {
  if (rank >= manifest_.world_size) {
    return InvalidArgument("{} has {} shards, but no shard {}", path_,
                           manifest_.world_size, rank);
  }
  ShardId id;
  id.job = manifest_.job;
  id.attempt = {manifest_.generation, manifest_.step, manifest_.id};
  id.rank = rank;
  id.world_size = manifest_.world_size;
  return Shard::Read(fs_, ShardPath(rank), manifest_.shards[rank], id);
}

Status Checkpoint::Verify() const {
  for (uint32_t rank = 0; rank < manifest_.world_size; ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(
        ReadChecked(fs_, ShardPath(rank), manifest_.shards[rank], nullptr));
  }
  return OkStatus();
}

Damaged SetAside(FileSystem* fs, const std::string& root,
                 const std::string& name, const Status& reason) {
  Damaged damaged{name, Message(reason), ""};
  if (auto kept = KeepAs(fs, root, name, kBadPrefix); kept.ok()) {
    damaged.kept_as = *std::move(kept);
  }
  return damaged;
}

StatusOr<Verified> OpenVerified(FileSystem* fs, const std::string& root,
                                const CheckpointKey& key,
                                const std::string& job) {
  Verified result;
  const std::string name = CheckpointName(key);
  const std::string path = JoinPath(root, name);
  auto opened = Checkpoint::Open(fs, path);
  if (opened.ok() && opened->manifest().job != job) return result;
  Status status = opened.status();
  if (status.ok()) status = opened->Verify();
  if (status.ok()) {
    result.checkpoint = *std::move(opened);
    return result;
  }
  if (!IsDamage(status)) {
    return Annotate(status, fmt::format("checkpoint {} cannot be read", name));
  }
  // A directory that was moved away while it was read misses all its files.
  if (const auto there = fs->Stat(path); !there.ok()) {
    return Unavailable("checkpoint {} vanished while it was read: {}", name,
                       Message(there.status()));
  }
  result.damage = Damaged{name, Message(status), ""};
  return result;
}

StatusOr<FindResult> FindNewest(FileSystem* fs, const std::string& root,
                                const std::string& job,
                                const LineagePredicate& on_lineage) {
  FindResult result;
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<CheckpointKey> keys,
                            ListCheckpoints(fs, root));
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    if (!on_lineage(*key)) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(Verified found,
                              OpenVerified(fs, root, *key, job));
    if (found.damage) result.damaged.push_back(*std::move(found.damage));
    if (!found.checkpoint) continue;
    result.newest = std::move(found.checkpoint);
    break;
  }
  if (!result.newest) return result;
  for (Damaged& damaged : result.damaged) {
    damaged = SetAside(fs, root, damaged.name, DataLoss("{}", damaged.reason));
  }
  return result;
}

}  // namespace lockstep::worker::checkpoint
