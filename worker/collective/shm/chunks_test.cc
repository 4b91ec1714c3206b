#include "worker/collective/shm/chunks.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::worker::collective::shm {
namespace {

Operation Of(CollectiveKind kind, size_t count, DataType type) {
  return {.kind = kind, .slice = {nullptr, 0, count, type}};
}

TEST(ChunksTest, CoverEveryElementOnceWithinItsPart) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
        CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
    for (const int size : {1, 2, 3, 8}) {
      for (const size_t wanted : {1, 1025, 5000, 70001, 1000003}) {
        const size_t count = wanted / size * size;
        const Operation operation = Of(kind, count, DataType::kFloat32);
        const Chunks chunks(operation, size);
        std::vector<int> seen(count);
        for (uint32_t i = 0; i < chunks.count(); ++i) {
          const Chunk chunk = chunks.At(i);
          ASSERT_GT(chunk.range.count, 0u);
          ASSERT_LE(chunk.range.first + chunk.range.count, count);
          const bool in_parts = kind == CollectiveKind::kReduceScatter ||
                                kind == CollectiveKind::kAllGather;
          if (in_parts) {
            const size_t part = count / size;
            ASSERT_EQ(chunk.range.first / part,
                      static_cast<size_t>(chunk.part));
            ASSERT_EQ((chunk.range.first + chunk.range.count - 1) / part,
                      static_cast<size_t>(chunk.part));
          }
          for (size_t k = 0; k < chunk.range.count; ++k) {
            ++seen[chunk.range.first + k];
          }
        }
        for (const int times : seen) ASSERT_EQ(times, 1);
      }
    }
  }
}

TEST(ChunksTest, TheLastElementsComeFirst) {
  const Chunks chunks(
      Of(CollectiveKind::kAllReduce, 1 << 20, DataType::kFloat32), 2);
  ASSERT_GT(chunks.count(), 1u);
  EXPECT_EQ(chunks.At(0).range.first + chunks.At(0).range.count,
            size_t{1} << 20);
  EXPECT_EQ(chunks.At(chunks.count() - 1).range.first, 0u);
}

TEST(ChunksTest, AreCountableHoweverMuchThereIs) {
  const size_t huge = size_t{1} << 46;
  const Chunks chunks(Of(CollectiveKind::kAllReduce, huge, DataType::kUint8),
                      2);
  EXPECT_LE(chunks.count(), uint32_t{1} << 30);
  EXPECT_EQ(chunks.At(chunks.count() - 1).range.first, 0u);
}

TEST(ChunksTest, NothingIsNoChunk) {
  EXPECT_EQ(
      Chunks(Of(CollectiveKind::kAllReduce, 0, DataType::kInt64), 2).count(),
      0u);
}

TEST(PartsTest, CoverEveryElementOnce) {
  for (const int size : {1, 2, 3, 7}) {
    for (const size_t count : {0, 1, 1023, 1024, 5000, 1000003}) {
      size_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Range part = PartOf(count, rank, size);
        if (part.count == 0) continue;
        EXPECT_EQ(part.first, next);
        next = part.first + part.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(BlocksTest, CoverEveryElementOnceAndFitTheStage) {
  constexpr size_t kStage = size_t{4} << 20;
  for (const bool spinning : {false, true}) {
    for (const int size : {1, 2, 3, 8, 128}) {
      const Blocks::Shape shape = Blocks::ShapeOf(size, kStage, spinning);
      ASSERT_GE(shape.slots, 4u);
      ASSERT_LE(shape.slots * shape.piece_bytes * size, kStage);
      for (const CollectiveKind kind :
           {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter}) {
        for (const size_t wanted : {1, 5000, 1000003}) {
          const size_t count = kind == CollectiveKind::kReduceScatter
                                   ? wanted / size * size
                                   : wanted;
          const Blocks blocks(Of(kind, count, DataType::kFloat64), size, shape);
          std::vector<int> seen(count);
          for (uint64_t block = 0; block < blocks.count(); ++block) {
            for (int part = 0; part < size; ++part) {
              const Range piece = blocks.PieceOf(part, block);
              ASSERT_LE(piece.count * 8, shape.piece_bytes);
              for (size_t i = 0; i < piece.count; ++i) ++seen[piece.first + i];
            }
          }
          for (const int times : seen) ASSERT_EQ(times, 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::shm
