// The names in a job's checkpoint directory. No other file knows them. PURE.
//
//   step-000000120.g7/         a complete checkpoint: its files never change
//     MANIFEST                 its contents, with the checksums of all files
//     READ_BACK                empty: it was read back whole
//     shard-00001-of-00004     the part of rank 1 of 4
//   .tmp-000000120.g7.3/       being written: checkpoint 3 of generation 7
//     rank-1/shard, VOTE       only rank 1 writes in here
//   .bad-step-000000120.g7/    found damaged; kept for a person
//   .trash-step-000000120.g7/  being deleted
//   .old-step-000000120.g7/    of a job that used this directory before
//   LATEST                     a hint for people, never trusted
//   FENCE                      the job and its newest generation
#ifndef LOCKSTEP_WORKER_CHECKPOINT_LAYOUT_H_
#define LOCKSTEP_WORKER_CHECKPOINT_LAYOUT_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::worker::checkpoint {

inline constexpr char kManifestName[] = "MANIFEST";
inline constexpr char kReadBackName[] = "READ_BACK";
inline constexpr char kLatestName[] = "LATEST";
inline constexpr char kFenceName[] = "FENCE";
inline constexpr char kRankShardName[] = "shard";
inline constexpr char kVoteName[] = "VOTE";
inline constexpr std::string_view kBadPrefix = ".bad-";
inline constexpr std::string_view kOldPrefix = ".old-";
inline constexpr std::string_view kTrashPrefix = ".trash-";

inline constexpr int64_t kMaxStep = 999'999'999'999'999;
inline constexpr uint32_t kMaxWorldSize = 65'536;

// A complete checkpoint. Ordered by generation first: along a lineage a later
// generation never holds an earlier step.
struct CheckpointKey {
  uint64_t generation = 0;
  int64_t step = 0;

  auto operator<=>(const CheckpointKey&) const = default;
};

// One attempt at writing a checkpoint: `id` distinguishes attempts at one step.
struct AttemptKey {
  uint64_t generation = 0;
  int64_t step = 0;
  uint64_t id = 0;

  auto operator<=>(const AttemptKey&) const = default;
};

std::string CheckpointName(const CheckpointKey& key);
std::string StagingName(const AttemptKey& key);
std::string RankName(uint32_t rank);
std::string ShardName(uint32_t rank, uint32_t world_size);

// No value unless the function above makes exactly `name`.
std::optional<CheckpointKey> ParseCheckpointName(std::string_view name);
std::optional<AttemptKey> ParseStagingName(std::string_view name);

// "/a/b" -> "b" and "/a"; trailing slashes are ignored. The parent of a bare
// name is ".".
std::string BaseName(std::string_view path);
std::string ParentDir(std::string_view path);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_LAYOUT_H_
