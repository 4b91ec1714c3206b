// The memory of gradients over generations.
#include <gmock/gmock.h>

#include <cstring>

#include "worker/collective/shm/segment.h"
#include "worker/collective/shm/shm_test_util.h"

namespace lockstep::worker::collective::shm {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = size_t{64} << 20;

// A generation's memory with a buffer of a page, and a peer's mapping of it,
// which outlives it: that of a member that is frozen.
struct Generation {
  explicit Generation(AddressRange* range) {
    Fd file;
    segment = Segment::Create(2, &file).value();
    EXPECT_TRUE(segment.MoveArenaTo(range, file.get()).ok());
    peer = Segment::Map(file.get(), segment.bytes()).value();
    Arena arena(&segment);
    size_t rounded = 0;
    place = arena.Allocate(4096, &rounded).value();
  }
  unsigned char* view() const { return segment.At(place); }
  unsigned char* theirs() const { return peer.At(place); }

  Segment segment;
  Segment peer;
  size_t place = 0;
};

TEST(ArenaTest, AFrozenMemberOfAnOlderGenerationWritesWhereNobodyReads) {
  auto range = AddressRange::Reserve(kBytes);
  ASSERT_TRUE(range.ok()) << range.status();
  Generation old(range->get());
  unsigned char* const view = old.view();
  EXPECT_EQ(view, (*range)->data());
  std::memset(old.theirs(), 1, 4096);
  EXPECT_EQ(view[100], 1) << "shared in its own time";
  { const Segment gone = std::move(old.segment); }
  EXPECT_EQ(view[100], 0) << "a view outlives the generation";
  Generation next(range->get());
  EXPECT_EQ(next.view(), view);
  EXPECT_EQ(view[100], 0);
  view[101] = 7;
  // Thawed, it goes on with its chunk.
  std::memset(old.theirs(), 2, 4096);
  EXPECT_EQ(view[100], 0);
  EXPECT_EQ(view[101], 7);
  std::memset(next.theirs(), 3, 4096);
  EXPECT_EQ(view[100], 3);
}

TEST(ArenaTest, IsOfOneGenerationAtATime) {
  auto range = AddressRange::Reserve(kBytes);
  ASSERT_TRUE(range.ok()) << range.status();
  const Generation first(range->get());
  Fd file;
  Segment second = Segment::Create(2, &file).value();
  const Status refused = second.MoveArenaTo(range->get(), file.get());
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("must go first"));
  // And it has its own place still.
  EXPECT_EQ(second.At(kArenaPlace), second.data() + kArenaPlace);
}

TEST(ArenaTest, GivesNoMoreThanTheRangeHas) {
  auto range = AddressRange::Reserve(kBytes);
  ASSERT_TRUE(range.ok()) << range.status();
  Fd file;
  Segment segment = Segment::Create(2, &file).value();
  ASSERT_TRUE(segment.MoveArenaTo(range->get(), file.get()).ok());
  Arena arena(&segment);
  size_t rounded = 0;
  EXPECT_EQ(arena.Allocate(kBytes + 1, &rounded).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(arena.Allocate(kHugePage, &rounded).ok());
  EXPECT_EQ(arena.Allocate(kBytes, &rounded).status().code(),
            StatusCode::kResourceExhausted);
}

// A rank with addresses of its own among ranks without, and results through
// both.
TEST(ArenaTest, RanksReduceInIt) {
  signal(SIGPIPE, SIG_IGN);
  auto range = AddressRange::Reserve(kBytes);
  ASSERT_TRUE(range.ok()) << range.status();
  for (int generation = 0; generation < 3; ++generation) {
    MapRendezvousStore store;
    SpawnRanks(3, [&](int rank) {
      CommunicatorOptions options = ShmOptions(rank, 3, &store);
      if (rank == 1) options.addresses = range->get();
      auto c = FormShm(options);
      ASSERT_TRUE(c.ok()) << c.status();
      constexpr size_t kCount = 100000;
      const Buffer* const buffer = (*c)->Allocate(kCount * 4).value();
      if (rank == 1) {
        EXPECT_EQ(buffer->data, (*range)->data());
      }
      float* const data = static_cast<float*>(buffer->data);
      for (const size_t count : {size_t{10}, kCount}) {
        std::fill(data, data + count, static_cast<float>(rank + generation));
        ASSERT_TRUE(
            collective::Run(c->get(), Floats(buffer, count), kLong).ok());
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(data[i], 3 + 3 * generation) << i;
        }
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::shm
