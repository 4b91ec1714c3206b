// Shared by the tests here: a small job's state, and whole checkpoints of it.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_TEST_UTIL_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/checkpoint/cleanup.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/snapshot.h"
#include "worker/checkpoint/writer.h"

namespace lockstep::worker::checkpoint {

inline constexpr char kTestJob[] = "mnist";

// Parameters that depend on the step, so that two checkpoints differ.
class TestState {
 public:
  explicit TestState(int64_t step, size_t elements = 1000);
  std::vector<TensorView> Views() const;
  // Whether `shard` holds exactly this.
  bool Equals(const Shard& shard) const;
  int64_t step() const { return step_; }

 private:
  int64_t step_;
  std::vector<float> weight_;
  std::vector<uint16_t> half_;
};

// Generation g began at step 200 * (g - 1).
std::vector<LineageEntry> TestLineage(uint64_t generation);
LineagePredicate OnTestLineage(std::vector<LineageEntry> lineage);

// Writes the part of `rank` of `world_size`; rank 0 holds the state.
StatusOr<Vote> TestWriteRank(FileSystem* fs, const std::string& root,
                             const AttemptKey& attempt, uint32_t rank,
                             uint32_t world_size, const TestState& state);
PublishRequest TestPublishRequest(const AttemptKey& attempt,
                                  uint32_t world_size);

// All ranks and the chief, one after the other: a complete checkpoint.
StatusOr<std::string> TestCheckpoint(FileSystem* fs, const std::string& root,
                                     const AttemptKey& attempt,
                                     uint32_t world_size = 2);

// Returns the step of the newest checkpoint, whose contents must be bit-equal
// to the state that was written; -1: there is none. Adds the names of damaged
// ones to `damaged`.
StatusOr<int64_t> TestRestore(FileSystem* fs, const std::string& root,
                              uint64_t generation,
                              std::vector<Damaged>* damaged = nullptr);

// While it lives, root is an ordinary user, so that permissions count.
class AsNobody {
 public:
  AsNobody();
  ~AsNobody();

 private:
  const bool was_root_;
};

// A directory in /tmp (mode 0755) that goes when this goes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_TEST_UTIL_H_
