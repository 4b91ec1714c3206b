#include "worker/collective/shm/chunks.h"

#include <algorithm>

#include "worker/collective/page_size.h"

namespace lockstep::worker::collective::shm {
namespace {

constexpr size_t kLeastChunk = size_t{16} << 10;
constexpr size_t kMostChunk = size_t{256} << 10;
// So many for each rank, that the last one is not waited for long.
constexpr size_t kChunksPerRank = 8;

constexpr size_t kMostPiece = size_t{64} << 10;
constexpr size_t kLeastSlots = 4;
constexpr size_t kSpinningSlots = 8;

bool InParts(const Operation& operation) {
  return operation.kind == CollectiveKind::kReduceScatter ||
         operation.kind == CollectiveKind::kAllGather;
}

}  // namespace

Range ContributionOf(const Operation& operation, int rank, int size) {
  const size_t count = operation.slice.count;
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
      return {0, count};
    case CollectiveKind::kAllGather:
      return {count / size * rank, count / size};
    case CollectiveKind::kBroadcast:
      return {0, rank == operation.root ? count : 0};
    case CollectiveKind::kBarrier:
    case CollectiveKind::kAllToAll:  // See exchanger.h.
      return {};
  }
  return {};
}

Range PartOf(size_t count, int rank, int size) {
  constexpr size_t kUnit = 1024;
  const size_t units = (count + kUnit - 1) / kUnit;
  const auto border = [&](size_t r) {
    return std::min(units * r / size * kUnit, count);
  };
  const size_t first = border(rank);
  return {first, border(rank + 1) - first};
}

Chunks::Chunks(const Operation& operation, int size) {
  const size_t count = operation.slice.count;
  const size_t element = SizeOf(operation.slice.type);
  const size_t parts = InParts(operation) ? size : 1;
  part_elements_ = count / parts;
  if (part_elements_ == 0) return;
  const size_t share = count * element / size / kChunksPerRank;
  const size_t bytes =
      std::clamp(share / kPage * kPage, kLeastChunk, kMostChunk);
  chunk_elements_ = bytes / element;
  // Claims are 32 bits wide.
  while (count / chunk_elements_ >= (uint32_t{1} << 30)) chunk_elements_ *= 2;
  per_part_ = static_cast<uint32_t>((part_elements_ + chunk_elements_ - 1) /
                                    chunk_elements_);
  count_ = per_part_ * static_cast<uint32_t>(parts);
}

Chunk Chunks::At(uint32_t number) const {
  const uint32_t index = count_ - 1 - number;
  Chunk chunk;
  chunk.part = static_cast<int>(index / per_part_);
  const size_t within = (index % per_part_) * chunk_elements_;
  chunk.range.first = chunk.part * part_elements_ + within;
  chunk.range.count = std::min(chunk_elements_, part_elements_ - within);
  return chunk;
}

Blocks::Shape Blocks::ShapeOf(int size, size_t stage_bytes, bool spinning) {
  Shape shape;
  const size_t share = stage_bytes / kLeastSlots / size;
  shape.piece_bytes = std::min(share / kPage * kPage, kMostPiece);
  shape.slots = stage_bytes / (shape.piece_bytes * size);
  if (spinning) shape.slots = std::min(shape.slots, kSpinningSlots);
  return shape;
}

Blocks::Blocks(const Operation& operation, int size, const Shape& shape)
    : elements_(operation.slice.count),
      size_(size),
      in_parts_(InParts(operation)),
      piece_elements_(shape.piece_bytes / SizeOf(operation.slice.type)) {
  size_t largest = in_parts_ ? elements_ / size : 0;
  for (int rank = 0; rank < size && !in_parts_; ++rank) {
    largest = std::max(largest, PartOf(elements_, rank, size).count);
  }
  count_ = (largest + piece_elements_ - 1) / piece_elements_;
}

Range Blocks::PieceOf(int part, uint64_t block) const {
  const Range whole = in_parts_
                          ? Range{elements_ / size_ * part, elements_ / size_}
                          : PartOf(elements_, part, size_);
  const size_t begin = block * piece_elements_;
  if (begin >= whole.count) return {};
  return {whole.first + begin, std::min(piece_elements_, whole.count - begin)};
}

}  // namespace lockstep::worker::collective::shm
