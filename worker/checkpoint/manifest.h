// The manifest of a complete checkpoint, and the rule from which checkpoints a
// job may go on. PURE. Bytes: docs/formats/checkpoint.md.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_MANIFEST_H_
#define LOCKSTEP_WORKER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/checksum.h"
#include "worker/checkpoint/layout.h"

namespace lockstep::worker::checkpoint {

inline constexpr uint64_t kMaxManifestBytes = 64 << 20;
inline constexpr size_t kMaxMetadataEntries = 1024;
inline constexpr size_t kMaxMetadataValue = 1 << 20;

// The next sample that no step has used: position `position` of the order of
// `epoch`.
struct Cursor {
  uint64_t epoch = 0;
  uint64_t position = 0;

  bool operator==(const Cursor&) const = default;
};

// Generation `generation` went on from the state after `start_step` steps;
// kNotSaid: from the newest complete checkpoint, which it fenced before it
// looked, so no complete one before it is dead.
struct LineageEntry {
  static constexpr int64_t kNotSaid = -1;
  uint64_t generation = 0;
  int64_t start_step = 0;

  bool operator==(const LineageEntry&) const = default;
};

// Whether the job's present state descends from `key`: its generation is in
// the lineage, its step is not before that generation began, and no later
// generation went on from an earlier step. With g8 started at 120 a g7
// checkpoint at 120 lives and one at 130 is dead.
// `lineage` may be in any order.
bool IsOnLineage(std::span<const LineageEntry> lineage,
                 const CheckpointKey& key);

// MANIFEST. A step is a count of applied steps: the state of step 120 is the
// result of 120 steps.
struct Manifest {
  std::string job;
  uint64_t generation = 0;
  int64_t step = 0;
  uint64_t id = 0;
  Cursor cursor;
  uint32_t world_size = 0;
  // Equal on all ranks when it was written.
  uint64_t state_hash = 0;
  std::vector<LineageEntry> lineage;
  // The run's own facts: model signature, seed, reduction plan. UTF-8.
  std::map<std::string, std::string> metadata;
  // For people: "2026-01-31T12:00:00.123Z".
  std::string written;
  // shards[r] is rank r's part, in file ShardName(r, world_size).
  std::vector<FileSums> shards;

  bool operator==(const Manifest&) const = default;
  CheckpointKey key() const { return {generation, step}; }
};

// InvalidArgument: Decode would not take the result.
StatusOr<std::string> EncodeManifest(const Manifest& manifest);
// DataLoss for anything that EncodeManifest did not make.
StatusOr<Manifest> DecodeManifest(std::string_view text);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_MANIFEST_H_
