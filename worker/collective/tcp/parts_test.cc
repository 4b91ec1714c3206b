// The pure parts: 16-bit arithmetic, the order of a ring's pieces, plans and
// peers, proofs, headers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "worker/collective/operation.h"
#include "worker/collective/tcp/auth.h"
#include "worker/collective/tcp/combine.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/ring.h"
#include "worker/collective/tcp/wire.h"

namespace lockstep::worker::collective::tcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The value of a half by IEEE 754's definition.
double HalfValue(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 0x3ff;
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return fraction != 0 ? std::nan("") : sign * INFINITY;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(CombineTest, EveryHalfIsWidenedExactlyAndComesBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<uint16_t>(i);
    float wide = 0;
    Widen(DataType::kFloat16, &half, &wide, 1);
    const double value = HalfValue(half);
    uint16_t back = 0;
    Narrow(DataType::kFloat16, &wide, &back, 1);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide));
      ASSERT_TRUE(std::isnan(HalfValue(back)));
      continue;
    }
    ASSERT_EQ(wide, value);
    ASSERT_EQ(std::signbit(wide), (half & 0x8000) != 0);
    ASSERT_EQ(back, half);
  }
}

TEST(CombineTest, HalvesAreRoundedToTheNearestAndTiesToEven) {
  for (uint32_t i = 0; i < 0x7bff; ++i) {
    const double low = HalfValue(static_cast<uint16_t>(i));
    const double high = HalfValue(static_cast<uint16_t>(i + 1));
    const float middle = static_cast<float>((low + high) / 2);
    const float inputs[3] = {std::nextafter(middle, 0.0f), middle,
                             std::nextafter(middle, 1e9f)};
    uint16_t out[3];
    Narrow(DataType::kFloat16, inputs, out, 3);
    ASSERT_EQ(out[0], i);
    ASSERT_EQ(out[1], i + (i & 1));
    ASSERT_EQ(out[2], i + 1);
  }
  const float big[2] = {65519.0f, -65520.0f};
  uint16_t out[2];
  Narrow(DataType::kFloat16, big, out, 2);
  EXPECT_EQ(out[0], 0x7bff);
  EXPECT_EQ(out[1], 0xfc00);
}

TEST(CombineTest, BfloatsAreTheUpperHalfOfFloatsRounded) {
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    uint16_t out = 0;
    Narrow(DataType::kBfloat16, &value, &out, 1);
    float back = 0;
    Widen(DataType::kBfloat16, &out, &back, 1);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(back));
      continue;
    }
    // Neither neighbour is nearer.
    const auto at = [](uint16_t bits) {
      return static_cast<double>(
          std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
    };
    if (std::isinf(back)) {
      ASSERT_GT(std::abs(value), 3.3895e38);
      continue;
    }
    const double error = std::abs(at(out) - value);
    if ((out & 0x7fff) != 0) {
      ASSERT_LE(error, std::abs(at(out - 1) - value));
    }
    if (!std::isinf(at(out + 1))) {
      ASSERT_LE(error, std::abs(at(out + 1) - value));
    }
  }
}

TEST(CombineTest, SixteenBitSumsAreRoundedOnce) {
  // 1 + 2^-11 + 2^-11: rounding after each addition would lose both.
  std::vector<uint16_t> operands[3];
  const float values[3] = {1.0f, 0x1p-11f, 0x1p-11f};
  const size_t count = 5000;
  std::vector<const void*> pointers;
  for (int i = 0; i < 3; ++i) {
    operands[i].resize(count);
    const std::vector<float> wide(count, values[i]);
    Narrow(DataType::kFloat16, wide.data(), operands[i].data(), count);
    pointers.push_back(operands[i].data());
  }
  const Combiner sum(DataType::kFloat16, ReduceOp::kSum, 3);
  sum.CombineAll(operands[2].data(), pointers.data(), 3, count);
  for (const uint16_t half : operands[2])
    ASSERT_EQ(HalfValue(half), 1 + 0x1p-10);
}

TEST(RingTest, EveryPieceOnceAndNeverBeforeWhatItNeeds) {
  for (const size_t segments : {1, 2, 3, 7, 20}) {
    for (const size_t steps : {1, 2, 3, 6, 14}) {
      for (const size_t ahead : {1, 2, 5}) {
        std::set<std::pair<size_t, size_t>> seen;
        for (RingCursor at(segments, steps, ahead); !at.done(); at.Next()) {
          ASSERT_LT(at.segment(), segments);
          ASSERT_LT(at.step(), steps);
          for (size_t k = 0; k < segments; ++k) {
            for (size_t s = 0; s < steps; ++s) {
              ASSERT_EQ(at.IsBeyond(k, s), seen.count({k, s}) == 1);
            }
          }
          if (at.step() > 0) {
            ASSERT_EQ(seen.count({at.segment(), at.step() - 1}), 1u);
          }
          ASSERT_TRUE(seen.insert({at.segment(), at.step()}).second);
        }
        ASSERT_EQ(seen.size(), segments * steps);
      }
    }
  }
  EXPECT_TRUE(RingCursor(0, 4, 1).done());
  EXPECT_TRUE(RingCursor(4, 0, 1).done());
}

TEST(RingTest, PiecesCoverTheRange) {
  for (const size_t count : {0, 1, 15, 16, 17, 1000, 99999}) {
    for (const size_t pieces : {1, 2, 3, 8, 100}) {
      size_t at = 5;
      for (size_t i = 0; i < pieces; ++i) {
        const Range piece = PieceOf({5, 5 + count}, pieces, i);
        ASSERT_EQ(piece.begin, at);
        ASSERT_LE(piece.begin, piece.end);
        ASSERT_LE(piece.end - piece.begin, count / pieces + 32);
        at = piece.end;
      }
      ASSERT_EQ(at, 5 + count);
    }
    for (const size_t most : {16, 40, 512, 100000}) {
      const size_t pieces = PiecesFor(count, most);
      for (size_t i = 0; i < pieces; ++i) {
        const Range piece = PieceOf({5, 5 + count}, pieces, i);
        ASSERT_LE(piece.end - piece.begin, most);
      }
    }
  }
}

TEST(PlanTest, PeersAgreeAndAreFew) {
  for (int ranks = 2; ranks <= 70; ++ranks) {
    const Plan plan = MakePlan(ranks, HostSharing::kNone);
    std::vector<std::vector<int>> peers;
    for (int rank = 0; rank < ranks; ++rank) {
      peers.push_back(PeersOf(rank, ranks, plan));
      EXPECT_LE(peers[rank].size(), ranks <= 16 ? 15u : 9u);
    }
    const auto connected = [&](int a, int b) {
      return std::count(peers[a].begin(), peers[a].end(), b) == 1;
    };
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(connected(rank, rank));
      EXPECT_TRUE(connected(rank, (rank + 1) % ranks));
      for (const int peer : peers[rank]) EXPECT_TRUE(connected(peer, rank));
    }
  }
  EXPECT_LE(PeersOf(7, 4096, MakePlan(4096, HostSharing::kNone)).size(), 14u);
}

// The last bucket of gradients over a line has 256 KiB. On a slow one tuning
// ends below that.
TEST(PlanTest, FewRanksThatAreNoPowerOfTwoReduceBucketsInARing) {
  for (const int ranks : {3, 5, 6, 7}) {
    const Plan plan = MakePlan(ranks, HostSharing::kNone);
    EXPECT_LE(plan.halving_below, size_t{256} << 10) << ranks;
    EXPECT_GE(plan.halving_below, plan.doubling_below) << ranks;
  }
  // There is nothing in pairs, or a ring's way is long.
  for (const int ranks : {4, 8, 48, 64}) {
    EXPECT_EQ(MakePlan(ranks, HostSharing::kNone).halving_below,
              size_t{512} << 10)
        << ranks;
  }
}

TEST(PlanTest, GroupsCountEveryRankOnce) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    const Group group(ranks);
    int next = 0;
    for (int member = 0; member < group.size; ++member) {
      const int rank = group.RankOf(member);
      EXPECT_EQ(group.MemberOf(rank), member);
      EXPECT_EQ(group.FirstOf(member), next);
      next += group.PairOf(rank) >= 0 ? 2 : 1;
      if (group.PairOf(rank) >= 0) {
        EXPECT_EQ(group.PairOf(rank), rank - 1);
        EXPECT_EQ(group.MemberOf(rank - 1), -1);
      }
    }
    EXPECT_EQ(next, ranks);
  }
}

TEST(PlanTest, ComesBackFromItsLine) {
  Plan plan = MakePlan(5, HostSharing::kAll);
  plan.streams = 3;
  const std::string line = PlanLine(plan, 5);
  const auto back = ParsePlan(line, 5);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, plan);
  EXPECT_THAT(Message(ParsePlan(line, 4).status()),
              AllOf(HasSubstr("for 5 ranks"), HasSubstr("here are 4")));
  const std::string good =
      "tcp ranks=5 doubling=0 halving=2 chunk=256 ahead=1 mesh=4 streams=8";
  EXPECT_TRUE(ParsePlan(good, 5).ok());
  for (const char* text :
       {"", "tcp", "tcp ranks=5",
        "tcp ranks=5 doubling=0 halving=2 chunk=256 ahead=1 mesh=4",
        "tcp ranks=5 doubling=0 halving=2 chunk=256 ahead=1 mesh=4 streams=8 x",
        "tcp ranks=5  doubling=0 halving=2 chunk=256 ahead=1 mesh=4 streams=8",
        "tcp ranks=5 doubling=0 halving=2 chunk=256 ahead=1 mesh=4 streams=08",
        "tcp ranks=5 doubling=0 halving=2 chunk=256 ahead=1 mesh=4 streams=9",
        "tcp ranks=5 doubling=0 halving=2 chunk=256 ahead=1 mesh=4 streams=0",
        "tcp ranks=5 doubling=0 halving=2 chunk=256 ahead=0 mesh=4 streams=1",
        "tcp ranks=5 doubling=0 halving=2 chunk=260 ahead=1 mesh=4 streams=1",
        "tcp ranks=5 doubling=0 halving=2 chunk=256 ahead=1 mesh=-4 streams=1",
        "tcp ranks=5 doubling=-1 halving=2 chunk=256 ahead=1 mesh=4 streams=1",
        "tcp ranks=5 doubling=0 halving=4611686018427387904 chunk=256 ahead=1 "
        "mesh=4 streams=1"}) {
    EXPECT_FALSE(ParsePlan(text, 5).ok()) << text;
  }
  EXPECT_THAT(DescribePlan(plan, 5), AllOf(HasSubstr("tcp: recursive doubling"),
                                           HasSubstr("over 3 connections")));
}

TEST(AuthTest, OnlyTheSameSecretAndTheSameRolesProve) {
  const Secret secret = {"key", std::string(32, 's')};
  const Secret others[] = {{"kez", secret.session},
                           {"", secret.session},
                           {"key", std::string(32, 't')}};
  const Hello hello = MakeHello(3, 4);
  EXPECT_TRUE(IsHello(hello));
  const Challenge challenge = Answer(secret, hello);
  const Proof proof = Answer(secret, hello, challenge);
  EXPECT_TRUE(Proves(secret, hello, challenge));
  EXPECT_TRUE(Proves(secret, hello, challenge, proof));
  for (const Secret& other : others) {
    EXPECT_FALSE(Proves(other, hello, challenge));
    EXPECT_FALSE(Proves(other, hello, challenge, proof));
  }
  // An acceptor's proof is none of a connector's, and one for other ranks or
  // nonces is none here.
  Proof reflected;
  reflected.proof = challenge.proof;
  EXPECT_FALSE(Proves(secret, hello, challenge, reflected));
  Hello swapped = hello;
  std::swap(swapped.from, swapped.to);
  EXPECT_FALSE(Proves(secret, swapped, challenge));
  EXPECT_FALSE(Proves(secret, MakeHello(3, 4), challenge, proof));
  // Nor is one for another connection of the two.
  Hello second = hello;
  second.stream = 1;
  EXPECT_FALSE(Proves(secret, second, challenge));
  EXPECT_FALSE(Proves(secret, second, challenge, proof));
  EXPECT_FALSE(Proves(secret, hello, Answer(secret, hello), proof));
}

TEST(WireTest, HeadersSayWhatMattersOnly) {
  Buffer buffer;
  Operation reduce{.slice = {&buffer, 0, 7, DataType::kFloat32}};
  const Header header = MakeHeader(reduce, 3);
  EXPECT_EQ(Describe(header), "operation 3, all-reduce (sum) of 7 float32");
  reduce.slice.offset = 5;
  reduce.root = 4;
  EXPECT_EQ(header, MakeHeader(reduce, 3));
  EXPECT_NE(header, MakeHeader(reduce, 4));
  Operation other = reduce;
  other.op = ReduceOp::kMax;
  EXPECT_NE(header, MakeHeader(other, 3));
  other = reduce;
  other.part_of = WordsOf({.kind = CollectiveKind::kBarrier});
  EXPECT_NE(header, MakeHeader(other, 3));
  EXPECT_EQ(Describe(MakeHeader(other, 3)),
            "operation 3, all-reduce (sum) of 7 float32, part of barrier");
  const Header tuning = MakeHeader(reduce, 3, Purpose::kTuning);
  EXPECT_NE(header, tuning);
  EXPECT_EQ(Describe(tuning), "operation 3, tuning");
  EXPECT_TRUE(IsGoodbye(MakeGoodbye()));
  EXPECT_FALSE(IsGoodbye(header));
  // Anything may come from outside.
  Header strange;
  std::memset(static_cast<void*>(&strange), 0xee, sizeof(strange));
  EXPECT_FALSE(IsHeader(strange));
  EXPECT_EQ(Describe(strange), "bytes of another protocol");
  strange.magic = header.magic;
  EXPECT_THAT(Describe(strange), HasSubstr("unknown"));
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
