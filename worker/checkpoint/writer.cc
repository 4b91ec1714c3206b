#include "worker/checkpoint/writer.h"

#include <algorithm>

#include "common/base/fault_point.h"
#include "worker/checkpoint/cleanup.h"

namespace lockstep::worker::checkpoint {
namespace {

// Size of the vote of a 10 TB shard.
constexpr uint64_t kMaxVoteBytes = 32 << 20;

std::string RankPath(const std::string& root, const AttemptKey& attempt,
                     uint32_t rank) {
  return JoinPath(JoinPath(root, StagingName(attempt)), RankName(rank));
}

Status CheckStop(const ShouldStop& should_stop) {
  return should_stop ? should_stop() : OkStatus();
}

Status WriteWhole(FileSystem* fs, const std::string& path,
                  std::string_view text, const char* created,
                  const char* written) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, fs->Create(path));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint(created));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(text));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint(written));
  LOCKSTEP_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

// For what need not survive a power loss: others see all of it or nothing.
Status WriteVisible(FileSystem* fs, const std::string& path,
                    std::string_view text) {
  const std::string temporary = path + ".tmp";
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, fs->Create(temporary));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(text));
  LOCKSTEP_RETURN_IF_ERROR(file->Close());
  return fs->Rename(temporary, path);
}

StatusOr<Vote> WriteRankFiles(FileSystem* fs, const std::string& root,
                              const WriteRequest& request,
                              const Snapshot& snapshot,
                              const ShouldStop& should_stop,
                              WriteTimes* times) {
  const MonoTime began = MonotonicNow();
  const ShardId& id = request.shard;
  const std::string directory = RankPath(root, id.attempt, id.rank);
  LOCKSTEP_RETURN_IF_ERROR(CheckStop(should_stop));
  LOCKSTEP_RETURN_IF_ERROR(MakeDirsDurable(fs, root));
  LOCKSTEP_RETURN_IF_ERROR(fs->MakeDirs(directory));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.rank.made_dir"));
  LOCKSTEP_ASSIGN_OR_RETURN(auto created,
                            fs->Create(JoinPath(directory, kRankShardName)));
  ChecksummedFile file(std::move(created), should_stop);
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.rank.created"));
  LOCKSTEP_RETURN_IF_ERROR(WriteShard(id, snapshot, &file));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.rank.written"));
  const MonoTime written = MonotonicNow();
  LOCKSTEP_RETURN_IF_ERROR(file.SyncAndClose());
  if (times != nullptr) *times = {written - began, MonotonicNow() - written};
  // The directory is not synced: the chief moves the file and syncs its new
  // directory. The vote is not synced either, because it is useless after a
  // power loss.
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.rank.before_vote"));
  Vote vote;
  vote.attempt = id.attempt;
  vote.rank = id.rank;
  vote.world_size = id.world_size;
  vote.cursor = request.cursor;
  vote.state_hash = request.state_hash;
  vote.shard = file.Sums();
  LOCKSTEP_RETURN_IF_ERROR(CheckStop(should_stop));
  LOCKSTEP_RETURN_IF_ERROR(
      WriteVisible(fs, JoinPath(directory, kVoteName), EncodeVote(vote)));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.rank.voted"));
  return vote;
}

// Moves each rank's shard into the staging directory itself. Sizes are
// compared first: the ranks may be on other hosts, and a shared directory that
// is not shared, or not yet in step, is better found here.
Status MoveShards(FileSystem* fs, const std::string& root,
                  const AttemptKey& attempt, std::span<const Vote> votes,
                  const ShouldStop& should_stop) {
  const std::string staging = JoinPath(root, StagingName(attempt));
  for (const Vote& vote : votes) {
    const std::string shard =
        JoinPath(RankPath(root, attempt, vote.rank), kRankShardName);
    const auto info = fs->Stat(shard);
    if (!info.ok()) {
      return Annotate(
          info.status(),
          fmt::format(
              "the shard of rank {} is not visible: share {} with every host",
              vote.rank, root));
    }
    if (info->size != vote.shard.size) {
      return FailedPrecondition(
          "{} has {} bytes here, but rank {} wrote {}: share {} with every "
          "host",
          shard, info->size, vote.rank, vote.shard.size, root);
    }
  }
  for (const Vote& vote : votes) {
    LOCKSTEP_RETURN_IF_ERROR(CheckStop(should_stop));
    const std::string directory = RankPath(root, attempt, vote.rank);
    LOCKSTEP_RETURN_IF_ERROR(
        fs->Rename(JoinPath(directory, kRankShardName),
                   JoinPath(staging, ShardName(vote.rank, vote.world_size))));
    LOCKSTEP_RETURN_IF_ERROR(fs->RemoveAll(directory));
    LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.publish.moved"));
  }
  return OkStatus();
}

Manifest MakeManifest(const PublishRequest& request,
                      std::span<const Vote> votes) {
  Manifest manifest;
  manifest.job = request.job;
  manifest.generation = request.attempt.generation;
  manifest.step = request.attempt.step;
  manifest.id = request.attempt.id;
  manifest.cursor = votes.front().cursor;
  manifest.world_size = request.world_size;
  manifest.state_hash = votes.front().state_hash;
  manifest.lineage = request.lineage;
  manifest.metadata = request.metadata;
  manifest.written = request.written;
  manifest.shards.resize(request.world_size);
  for (const Vote& vote : votes) manifest.shards[vote.rank] = vote.shard;
  return manifest;
}

// All that comes before the directory gets its final name.
Status Assemble(FileSystem* fs, const std::string& root,
                const PublishRequest& request, std::span<const Vote> votes,
                const ShouldStop& should_stop) {
  const std::string staging = JoinPath(root, StagingName(request.attempt));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.publish.begin"));
  LOCKSTEP_RETURN_IF_ERROR(CheckStop(should_stop));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckVotes(request.attempt, request.world_size, votes));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckFence(fs, root, request.job, request.attempt.generation));
  // Encoded before anything is moved: it may be refused.
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string manifest,
                            EncodeManifest(MakeManifest(request, votes)));
  LOCKSTEP_RETURN_IF_ERROR(
      MoveShards(fs, root, request.attempt, votes, should_stop));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.publish.before_manifest"));
  LOCKSTEP_RETURN_IF_ERROR(WriteWhole(fs, JoinPath(staging, kManifestName),
                                      manifest,
                                      "checkpoint.publish.manifest_created",
                                      "checkpoint.publish.manifest_written"));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.publish.manifest_synced"));
  LOCKSTEP_RETURN_IF_ERROR(fs->SyncDir(staging));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.publish.staging_synced"));
  return CheckStop(should_stop);
}

// Whether `path` holds this very checkpoint, from an earlier try.
bool IsComplete(FileSystem* fs, const std::string& path,
                std::span<const Vote> votes) {
  const auto text = fs->Read(JoinPath(path, kManifestName), kMaxManifestBytes);
  if (!text.ok()) return false;
  const auto manifest = DecodeManifest(*text);
  return manifest.ok() && !votes.empty() &&
         manifest->state_hash == votes.front().state_hash &&
         manifest->cursor == votes.front().cursor;
}

}  // namespace

Status MakeDirsDurable(FileSystem* fs, const std::string& path) {
  if (fs->Exists(path)) return fs->MakeDirs(path);
  // The deepest directory that exists must learn of its new child, and so on.
  std::vector<std::string> to_sync;
  std::string at = path;
  while (!at.empty() && at != "/") {
    at = ParentDir(at);
    to_sync.push_back(at);
    if (at == "." || fs->Exists(at)) break;
  }
  LOCKSTEP_RETURN_IF_ERROR(fs->MakeDirs(path));
  for (const std::string& parent : to_sync) {
    LOCKSTEP_RETURN_IF_ERROR(fs->SyncDir(parent));
  }
  return OkStatus();
}

StatusOr<Vote> WriteRank(FileSystem* fs, const std::string& root,
                         const WriteRequest& request, const Snapshot& snapshot,
                         const ShouldStop& should_stop, WriteTimes* times) {
  const ShardId& id = request.shard;
  const std::string what =
      fmt::format("cannot write the checkpoint of step {} on rank {}",
                  id.attempt.step, id.rank);
  if (id.world_size > kMaxWorldSize || id.rank >= id.world_size ||
      id.attempt.step < 0 || id.attempt.step > kMaxStep) {
    return InvalidArgument("{}: no such rank of {} or no such step", what,
                           id.world_size);
  }
  Status begin = FaultPoint("checkpoint.rank.begin");
  StatusOr<Vote> vote = begin.ok() ? WriteRankFiles(fs, root, request, snapshot,
                                                    should_stop, times)
                                   : StatusOr<Vote>(begin);
  if (vote.ok()) return vote;
  DiscardRank(fs, root, id.attempt, id.rank).IgnoreError();
  return Annotate(vote.status(), what);
}

std::vector<Vote> CollectVotes(FileSystem* fs, const std::string& root,
                               const AttemptKey& attempt, uint32_t world_size) {
  std::vector<Vote> votes;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    const auto text = fs->Read(
        JoinPath(RankPath(root, attempt, rank), kVoteName), kMaxVoteBytes);
    if (!text.ok()) continue;
    auto vote = DecodeVote(*text);
    if (vote.ok() && vote->attempt == attempt && vote->rank == rank &&
        vote->world_size == world_size) {
      votes.push_back(*std::move(vote));
    }
  }
  return votes;
}

StatusOr<std::string> Publish(FileSystem* fs, const std::string& root,
                              const PublishRequest& request,
                              std::span<const Vote> votes,
                              const ShouldStop& should_stop) {
  const std::string what = fmt::format(
      "cannot publish the checkpoint of step {}", request.attempt.step);
  const std::string unsure = fmt::format(
      "cannot secure the published checkpoint of step {} (it is there, but may "
      "not survive a power loss)",
      request.attempt.step);
  const std::string name =
      CheckpointName({request.attempt.generation, request.attempt.step});
  const std::string path = JoinPath(root, name);
  if (IsComplete(fs, path, votes)) {
    Discard(fs, root, request.attempt).IgnoreError();
    // An earlier writer may have renamed it without the sync.
    LOCKSTEP_RETURN_IF_ERROR(Annotate(fs->SyncDir(root), unsure));
    return path;
  }
  Status status = Assemble(fs, root, request, votes, should_stop);
  if (status.ok()) {
    status = fs->Rename(JoinPath(root, StagingName(request.attempt)), path);
  }
  if (!status.ok()) {
    Discard(fs, root, request.attempt).IgnoreError();
    return Annotate(status, what);
  }
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.publish.renamed"));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(fs->SyncDir(root), unsure));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.publish.durable"));
  // Only a hint for users; losing it is harmless.
  WriteVisible(fs, JoinPath(root, kLatestName), name + "\n").IgnoreError();
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("checkpoint.publish.latest"));
  return path;
}

Status DiscardRank(FileSystem* fs, const std::string& root,
                   const AttemptKey& attempt, uint32_t rank) {
  LOCKSTEP_RETURN_IF_ERROR(fs->RemoveAll(RankPath(root, attempt, rank)));
  // Goes only when this rank was the last in it.
  fs->Remove(JoinPath(root, StagingName(attempt))).IgnoreError();
  return OkStatus();
}

Status Discard(FileSystem* fs, const std::string& root,
               const AttemptKey& attempt) {
  return fs->RemoveAll(JoinPath(root, StagingName(attempt)));
}

}  // namespace lockstep::worker::checkpoint
