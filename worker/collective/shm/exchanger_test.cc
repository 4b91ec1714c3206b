#include "worker/collective/shm/exchanger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::worker::collective::shm {
namespace {

constexpr size_t kSlot = 16 << 10;

// Ranks as values: they exchange through slots of plain memory.
class ExchangingRank {
 public:
  // counts[from][to]
  ExchangingRank(int rank, const std::vector<std::vector<size_t>>& counts)
      : exchanger_(rank, static_cast<int>(counts.size()), kSlot) {
    size_t most = 0;
    for (size_t from = 0; from < counts.size(); ++from) {
      size_t sum = 0;
      for (size_t to = 0; to < counts.size(); ++to) {
        if (to != from) sum += counts[from][to];
      }
      most = std::max(most, sum);
    }
    for (size_t peer = 0; peer < counts.size(); ++peer) {
      Add(&sends_, counts[rank][peer], rank * 1'000'000 + peer * 100'000);
      Add(&receives_, counts[peer][rank], -1);
    }
    operation_ = {.kind = CollectiveKind::kAllToAll,
                  .slice = {nullptr, 0, most, DataType::kInt32},
                  .sends = sends_,
                  .receives = receives_};
    exchanger_.Begin(operation_);
  }

  const Exchanger& exchanger() const { return exchanger_; }
  const Operation& operation() const { return operation_; }

  void Give(uint64_t block, std::vector<unsigned char>* slot) {
    exchanger_.Give(operation_, block, slot->data(), &policy_);
  }
  void Take(uint64_t block, int source, const unsigned char* slot) {
    exchanger_.Take(operation_, block, source, slot);
  }
  int32_t Received(int from, size_t i) const {
    return static_cast<const int32_t*>(receives_[from].data)[i];
  }

 private:
  void Add(std::vector<PeerPart>* parts, size_t count, int first) {
    memory_.emplace_back(count + 1);
    for (size_t i = 0; i < count; ++i) {
      memory_.back()[i] = first < 0 ? -1 : first + static_cast<int>(i);
    }
    parts->push_back({memory_.back().data(), count});
  }

  Exchanger exchanger_;
  StorePolicy policy_;
  std::vector<std::vector<int32_t>> memory_;
  std::vector<PeerPart> sends_;
  std::vector<PeerPart> receives_;
  Operation operation_;
};

TEST(ExchangerTest, EveryElementGoesToItsPlaceOnce) {
  const std::vector<std::vector<std::vector<size_t>>> cases = {
      {{0, 0}, {0, 0}},
      {{5, 1}, {0, 9}},
      {{0, 70'000}, {1, 0}},
      {{3, 9'000, 1}, {20'000, 0, 20'000}, {0, 1, 90'000}},
  };
  for (const auto& counts : cases) {
    const int n = static_cast<int>(counts.size());
    std::vector<ExchangingRank> ranks;
    ranks.reserve(n);
    for (int rank = 0; rank < n; ++rank) ranks.emplace_back(rank, counts);
    const uint64_t blocks = ranks[0].exchanger().blocks();
    ASSERT_GE(blocks, 1u);
    for (uint64_t block = 0; block < blocks; ++block) {
      for (int from = 0; from < n; ++from) {
        ASSERT_EQ(ranks[from].exchanger().blocks(), blocks);
        // The last bytes are not the slot's.
        std::vector<unsigned char> slot(kSlot + 64, 0x77);
        ranks[from].Give(block, &slot);
        for (size_t i = kSlot; i < slot.size(); ++i) ASSERT_EQ(slot[i], 0x77);
        for (int to = 0; to < n; ++to) {
          if (to != from) ranks[to].Take(block, from, slot.data());
        }
      }
    }
    for (int from = 0; from < n; ++from) {
      for (int to = 0; to < n; ++to) {
        for (size_t i = 0; i < counts[from][to] && to != from; ++i) {
          ASSERT_EQ(ranks[to].Received(from, i),
                    from * 1'000'000 + to * 100'000 + static_cast<int>(i));
        }
      }
    }
  }
}

// With the address sanitizer this would end the test.
TEST(ExchangerTest, NoPlaceOfAPeerIsOutsideOfItsSlot) {
  ExchangingRank rank(0, {{0, 9}, {4'000, 0}});
  std::vector<unsigned char> slot(kSlot, 0xff);
  for (uint64_t block = 0; block < rank.exchanger().blocks(); ++block) {
    rank.Take(block, 1, slot.data());
  }
  EXPECT_EQ(rank.Received(1, 3'999), -1);
}

TEST(ExchangerTest, SharesAreNearlyEqualAndInOrder) {
  ExchangingRank rank(0, {{0, 50'000}, {7, 0}});
  const Exchanger& exchanger = rank.exchanger();
  for (const size_t count : {size_t{0}, size_t{1}, size_t{13}, SIZE_MAX / 8}) {
    size_t next = 0;
    for (uint64_t block = 0; block < exchanger.blocks(); ++block) {
      const Range share = exchanger.ShareOf(count, block);
      EXPECT_EQ(share.first, next);
      EXPECT_LE(share.count, count / exchanger.blocks() + 1);
      EXPECT_GE(share.count, count / exchanger.blocks());
      next += share.count;
    }
    EXPECT_EQ(next, count);
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::shm
