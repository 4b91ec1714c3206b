#include "worker/collective/shm/store_policy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "worker/collective/shm/stream_copy.h"

namespace lockstep::worker::collective::shm {
namespace {

constexpr size_t kPiece = size_t{64} << 10;
using std::chrono::microseconds;

class StorePolicyTest : public testing::Test {
 protected:
  // Writes `count` pieces, which take `through` through the caches and 3 us
  // past them. Returns how many went past them.
  int Write(int count, Duration through, size_t bytes = kPiece) {
    int past = 0;
    for (int i = 0; i < count; ++i) {
      const bool goes_past = store_policy_.past_caches();
      past += goes_past ? 1 : 0;
      store_policy_.Add(bytes, goes_past ? microseconds(3) : through);
    }
    return past;
  }

  StorePolicy store_policy_;
};

TEST_F(StorePolicyTest, NearProcessorsStayInTheCacheButForOneOfManyPieces) {
  EXPECT_EQ(Write(10 * StorePolicy::kTryEvery, microseconds(7)), 10);
  EXPECT_FALSE(store_policy_.past_caches());
}

TEST_F(StorePolicyTest, FarProcessorsGoPastThemAsSoonAsBothAreKnown) {
  EXPECT_EQ(Write(StorePolicy::kFirstTry, microseconds(30)), 0);
  EXPECT_EQ(Write(StorePolicy::kTryEvery - 1, microseconds(30)),
            StorePolicy::kTryEvery - 1);
}

TEST_F(StorePolicyTest, ProcessorsThatPartAreSeenAfterTwoPieces) {
  Write(StorePolicy::kTryEvery, microseconds(7));
  EXPECT_EQ(Write(2, microseconds(30)), 0);
  EXPECT_TRUE(store_policy_.past_caches());
}

TEST_F(StorePolicyTest, ProcessorsThatMeetAreSeenByTheSecondTry) {
  Write(StorePolicy::kTryEvery, microseconds(30));
  ASSERT_TRUE(store_policy_.past_caches());
  EXPECT_LE(Write(10 * StorePolicy::kTryEvery, microseconds(7)),
            2 * StorePolicy::kTryEvery + 9);
  EXPECT_FALSE(store_policy_.past_caches());
}

TEST_F(StorePolicyTest, OnePieceChangesNothing) {
  Write(StorePolicy::kTryEvery, microseconds(7));
  Write(1, std::chrono::milliseconds(4));
  EXPECT_FALSE(store_policy_.past_caches());
  Write(StorePolicy::kTryEvery - 3, microseconds(30));
  ASSERT_TRUE(store_policy_.past_caches());
  // The next try.
  while (store_policy_.past_caches()) Write(1, microseconds(30));
  Write(1, microseconds(7));
  EXPECT_TRUE(store_policy_.past_caches());
}

TEST_F(StorePolicyTest, SmallPiecesSayNothing) {
  Write(StorePolicy::kTryEvery, microseconds(7));
  Write(100, microseconds(30), StorePolicy::kLeastBytes - 1);
  EXPECT_FALSE(store_policy_.past_caches());
}

// Every alignment of both sides, and every length about the width of a line.
TEST(StreamCopyTest, CopiesWhatIsAskedAndNothingElse) {
  std::vector<unsigned char> in(400);
  for (size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<unsigned char>(i * 7 + 1);
  }
  for (size_t to = 0; to < 17; ++to) {
    for (size_t from = 0; from < 17; ++from) {
      for (size_t bytes = 0; bytes < 200; ++bytes) {
        std::vector<unsigned char> out(300, 0xee);
        StreamCopy(out.data() + to, in.data() + from, bytes);
        std::vector<unsigned char> expected(300, 0xee);
        std::memcpy(expected.data() + to, in.data() + from, bytes);
        ASSERT_EQ(out, expected) << to << " " << from << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::shm
