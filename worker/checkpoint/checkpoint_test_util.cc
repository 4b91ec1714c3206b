#include "worker/checkpoint/checkpoint_test_util.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace lockstep::worker::checkpoint {

TestState::TestState(int64_t step, size_t elements)
    : step_(step), weight_(elements), half_(elements / 2 + 1) {
  for (size_t i = 0; i < weight_.size(); ++i) {
    weight_[i] = static_cast<float>(step) + 0.001f * static_cast<float>(i);
  }
  for (size_t i = 0; i < half_.size(); ++i) {
    half_[i] = static_cast<uint16_t>(i * 7 + static_cast<size_t>(step));
  }
}

std::vector<TensorView> TestState::Views() const {
  TensorView weight{"layer1.weight",
                    DType::kF32,
                    {static_cast<int64_t>(weight_.size())},
                    weight_.data(),
                    weight_.size() * 4};
  TensorView half{"layer2.bias",
                  DType::kBf16,
                  {static_cast<int64_t>(half_.size())},
                  half_.data(),
                  half_.size() * 2};
  return {half, weight};
}

bool TestState::Equals(const Shard& shard) const {
  const std::vector<TensorView> views = Views();
  if (shard.tensors().size() != views.size()) return false;
  for (const TensorView& want : views) {
    const TensorView* got = shard.Find(want.name);
    if (got == nullptr || got->dtype != want.dtype ||
        got->shape != want.shape || got->contents() != want.contents()) {
      return false;
    }
  }
  return shard.Blob("rng") == fmt::format("rng of 0 at {}", step_);
}

std::vector<LineageEntry> TestLineage(uint64_t generation) {
  std::vector<LineageEntry> lineage;
  for (uint64_t g = 1; g <= generation; ++g) {
    lineage.push_back({g, static_cast<int64_t>(g - 1) * 200});
  }
  return lineage;
}

LineagePredicate OnTestLineage(std::vector<LineageEntry> lineage) {
  return [lineage = std::move(lineage)](const CheckpointKey& key) {
    return IsOnLineage(lineage, key);
  };
}

StatusOr<Vote> TestWriteRank(FileSystem* fs, const std::string& root,
                             const AttemptKey& attempt, uint32_t rank,
                             uint32_t world_size, const TestState& state) {
  Snapshot snapshot;
  if (rank == 0) LOCKSTEP_RETURN_IF_ERROR(snapshot.Copy(state.Views()));
  snapshot.AddBlob("rng", fmt::format("rng of {} at {}", rank, state.step()));
  WriteRequest request;
  request.shard = {kTestJob, attempt, rank, world_size};
  request.cursor = {1, static_cast<uint64_t>(attempt.step) * 64};
  request.state_hash = StateHash(state.Views());
  return WriteRank(fs, root, request, snapshot, nullptr);
}

PublishRequest TestPublishRequest(const AttemptKey& attempt,
                                  uint32_t world_size) {
  PublishRequest request;
  request.job = kTestJob;
  request.attempt = attempt;
  request.world_size = world_size;
  request.lineage = TestLineage(attempt.generation);
  request.metadata = {{"model_signature", "mlp 784-128-10"}};
  request.written = "2026-01-31T12:00:00.123Z";
  return request;
}

StatusOr<std::string> TestCheckpoint(FileSystem* fs, const std::string& root,
                                     const AttemptKey& attempt,
                                     uint32_t world_size) {
  const TestState state(attempt.step);
  std::vector<Vote> votes;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        Vote vote, TestWriteRank(fs, root, attempt, rank, world_size, state));
    votes.push_back(std::move(vote));
  }
  return Publish(fs, root, TestPublishRequest(attempt, world_size), votes,
                 nullptr);
}

StatusOr<int64_t> TestRestore(FileSystem* fs, const std::string& root,
                              uint64_t generation,
                              std::vector<Damaged>* damaged) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      FindResult found,
      FindNewest(fs, root, kTestJob, OnTestLineage(TestLineage(generation))));
  if (damaged != nullptr) *damaged = found.damaged;
  if (!found.newest) return int64_t{-1};
  const Manifest& manifest = found.newest->manifest();
  for (uint32_t rank = 0; rank < manifest.world_size; ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Shard shard, found.newest->ReadShard(rank));
    const TestState want(manifest.step);
    const bool right =
        rank == 0 ? want.Equals(shard)
                  : shard.Blob("rng") ==
                        fmt::format("rng of {} at {}", rank, manifest.step);
    if (!right) return Internal("rank {} restored something else", rank);
  }
  return manifest.step;
}

AsNobody::AsNobody() : was_root_(::geteuid() == 0) {
  if (was_root_ && ::seteuid(65534) != 0) std::abort();
}

AsNobody::~AsNobody() {
  if (was_root_ && ::seteuid(0) != 0) std::abort();
}

TempDir::TempDir() {
  char name[] = "/tmp/lockstep-checkpoint-XXXXXX";
  const char* made = ::mkdtemp(name);
  path_ = made == nullptr ? "" : made;
  ::chmod(name, 0755);
}

TempDir::~TempDir() { RealFileSystem()->RemoveAll(path_).IgnoreError(); }

}  // namespace lockstep::worker::checkpoint
