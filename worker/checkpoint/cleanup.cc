#include "worker/checkpoint/cleanup.h"

#include <algorithm>
#include <charconv>

#include "common/base/fault_point.h"
#include "worker/checkpoint/writer.h"

namespace lockstep::worker::checkpoint {
namespace {

struct Fence {
  uint64_t generation = 0;
  std::string job;
};

// Nullopt without a fence. An invalid fence counts as none: WriteAtomic never
// leaves a partial one.
StatusOr<std::optional<Fence>> ReadFence(FileSystem* fs,
                                         const std::string& root) {
  const auto text = fs->Read(JoinPath(root, kFenceName), 4096);
  if (text.status().code() == StatusCode::kNotFound) {
    return std::optional<Fence>();
  }
  if (!text.ok()) return text.status();
  Fence fence;
  const char* end = text->data() + text->size();
  const auto [after, error] =
      std::from_chars(text->data(), end, fence.generation);
  if (error != std::errc() || after == end || *after != ' ') {
    return std::optional<Fence>();
  }
  fence.job.assign(after + 1, end);
  while (fence.job.ends_with('\n')) fence.job.pop_back();
  return std::optional<Fence>(std::move(fence));
}

// Renames first, so a checkpoint in deletion can neither be published nor
// restored.
Status Trash(FileSystem* fs, const std::string& root, const std::string& name) {
  const std::string trash =
      JoinPath(root, fmt::format("{}{}", kTrashPrefix, name));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.trash.begin"));
  LOCKSTEP_RETURN_IF_ERROR(fs->RemoveAll(trash));
  LOCKSTEP_RETURN_IF_ERROR(fs->Rename(JoinPath(root, name), trash));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.trash.renamed"));
  LOCKSTEP_RETURN_IF_ERROR(fs->SyncDir(root));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.trash.synced"));
  return fs->RemoveAll(trash);
}

}  // namespace

StatusOr<std::vector<CheckpointKey>> ListCheckpoints(FileSystem* fs,
                                                     const std::string& root) {
  std::vector<CheckpointKey> keys;
  const auto names = fs->List(root);
  if (names.status().code() == StatusCode::kNotFound) return keys;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (const auto key = ParseCheckpointName(name)) keys.push_back(*key);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

Status CheckFence(FileSystem* fs, const std::string& root,
                  const std::string& job, uint64_t generation) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto fence, ReadFence(fs, root));
  if (!fence) return OkStatus();
  if (fence->job != job) {
    return FailedPrecondition("job {} uses {}: job {} needs another directory",
                              fence->job, root, job);
  }
  if (fence->generation > generation) {
    return FailedPrecondition(
        "generation {} has taken over {}: generation {} is over and must not "
        "write there",
        fence->generation, root, generation);
  }
  return OkStatus();
}

StatusOr<std::string> KeepAs(FileSystem* fs, const std::string& root,
                             const std::string& name, std::string_view prefix) {
  std::string kept = fmt::format("{}{}", prefix, name);
  for (int i = 2; fs->Exists(JoinPath(root, kept)); ++i) {
    if (i > 1000)
      return AlreadyExists("too many directories with the name {} in {}: 1000",
                           kept, root);
    kept = fmt::format("{}{}.{}", prefix, name, i);
  }
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.keep_as"));
  LOCKSTEP_RETURN_IF_ERROR(
      fs->Rename(JoinPath(root, name), JoinPath(root, kept)));
  LOCKSTEP_RETURN_IF_ERROR(fs->SyncDir(root));
  return kept;
}

StatusOr<std::vector<std::string>> TakeOver(FileSystem* fs,
                                            const std::string& root,
                                            const std::string& job,
                                            uint64_t generation) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto fence, ReadFence(fs, root));
  const bool foreign =
      generation <= 1 || (fence.has_value() && fence->job != job);
  if (!foreign) {
    LOCKSTEP_RETURN_IF_ERROR(CheckFence(fs, root, job, generation));
  }
  LOCKSTEP_RETURN_IF_ERROR(MakeDirsDurable(fs, root));
  std::vector<std::string> kept;
  if (foreign) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<CheckpointKey> keys,
                              ListCheckpoints(fs, root));
    for (const CheckpointKey& key : keys) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          std::string name, KeepAs(fs, root, CheckpointName(key), kOldPrefix));
      kept.push_back(std::move(name));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(fs->WriteAtomic(
      JoinPath(root, kFenceName), fmt::format("{} {}\n", generation, job)));
  // In a directory of another job every staging directory is a leftover.
  LOCKSTEP_RETURN_IF_ERROR(
      Sweep(fs, root, foreign ? UINT64_MAX : generation, std::nullopt));
  return kept;
}

Status Sweep(FileSystem* fs, const std::string& root, uint64_t generation,
             const std::optional<AttemptKey>& in_flight) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            fs->List(root));
  Status first;
  for (const std::string& name : names) {
    Status status;
    const bool half_written = name == fmt::format("{}.tmp", kLatestName) ||
                              name == fmt::format("{}.tmp", kFenceName);
    if (name.starts_with(kTrashPrefix) || half_written) {
      status = fs->RemoveAll(JoinPath(root, name));
    } else if (const auto attempt = ParseStagingName(name);
               attempt && attempt->generation <= generation &&
               attempt != in_flight) {
      status = Trash(fs, root, name);
    }
    if (first.ok()) first = status;
  }
  return first;
}

Status NoteReadBack(FileSystem* fs, const std::string& root,
                    const CheckpointKey& key) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto file,
      fs->Create(JoinPath(JoinPath(root, CheckpointName(key)), kReadBackName)));
  return file->Close();
}

StatusOr<std::vector<CheckpointKey>> ApplyRetention(
    FileSystem* fs, const std::string& root, const std::string& job,
    uint64_t generation, std::span<const LineageEntry> lineage,
    const std::set<CheckpointKey>& verified, const RetentionPolicy& policy) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFence(fs, root, job, generation));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<CheckpointKey> keys,
                            ListCheckpoints(fs, root));
  std::vector<RetentionCandidate> candidates;
  for (const CheckpointKey& key : keys) {
    candidates.push_back(
        {key, verified.contains(key) ||
                  fs->Exists(JoinPath(JoinPath(root, CheckpointName(key)),
                                      kReadBackName))});
  }
  std::vector<CheckpointKey> deleted;
  for (const CheckpointKey& key :
       ChooseDeletions(candidates, lineage, policy)) {
    LOCKSTEP_RETURN_IF_ERROR(Trash(fs, root, CheckpointName(key)));
    deleted.push_back(key);
  }
  return deleted;
}

}  // namespace lockstep::worker::checkpoint
