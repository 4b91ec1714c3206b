#include "server/core/awaited_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Waits = CollectiveWaits;

CollectiveWait WaitsFor(int32_t peer) { return {true, true, peer, 7}; }
CollectiveWait WaitsForUnknown() { return {true, true, std::nullopt, 7}; }
CollectiveWait WaitsForNone() { return {true, false, std::nullopt, 7}; }
// It says nothing any more; what it said last does not count.
CollectiveWait Stopped(int32_t peer) { return {false, true, peer, 7}; }
CollectiveWait DoesNotTell(bool responsive = true) {
  return {responsive, std::nullopt, std::nullopt, 0};
}

TEST(AwaitedRanksTest, WaitsLeadToTheStoppedRank) {
  // As in a ring: each waits for the one before it.
  const Waits ring = {
      {0, WaitsFor(3)}, {1, WaitsFor(0)}, {2, Stopped(1)}, {3, WaitsFor(2)}};
  EXPECT_THAT(AwaitedRanks(ring), ElementsAre(2));
  const Waits two = {{0, Stopped(1)}, {1, WaitsFor(0)}};
  EXPECT_THAT(AwaitedRanks(two), ElementsAre(0));
}

TEST(AwaitedRanksTest, ARunningProcessThatWaitsForNoneIsStuckElsewhere) {
  const Waits waits = {{0, WaitsFor(1)}, {1, WaitsForNone()}, {2, WaitsFor(0)}};
  EXPECT_THAT(AwaitedRanks(waits), ElementsAre(1));
}

TEST(AwaitedRanksTest, ACircleIsTheNetwork) {
  EXPECT_THAT(AwaitedRanks({{0, WaitsFor(1)}, {1, WaitsFor(0)}}), IsEmpty());
  const Waits three = {{0, WaitsFor(2)}, {1, WaitsFor(0)}, {2, WaitsFor(1)}};
  EXPECT_THAT(AwaitedRanks(three), IsEmpty());
  // Waits that lead into one, and a rank for which none waits.
  const Waits aside = {{0, WaitsFor(2)},
                       {1, WaitsFor(0)},
                       {2, WaitsFor(0)},
                       {3, WaitsForNone()}};
  EXPECT_THAT(AwaitedRanks(aside), IsEmpty());
}

TEST(AwaitedRanksTest, ThereMayBeSeveral) {
  const Waits waits = {{0, Stopped(3)},
                       {1, WaitsFor(4)},
                       {2, WaitsFor(4)},
                       {3, WaitsFor(0)},
                       {4, Stopped(0)}};
  EXPECT_THAT(AwaitedRanks(waits), ElementsAre(0, 4));
}

TEST(AwaitedRanksTest, WithoutPeersAStoppedProcessIsStillSeen) {
  // NCCL tells nothing.
  const Waits nccl = {
      {0, DoesNotTell()}, {1, DoesNotTell(false)}, {2, DoesNotTell()}};
  EXPECT_THAT(AwaitedRanks(nccl), ElementsAre(1));
  const Waits unknown = {
      {0, WaitsForUnknown()}, {1, WaitsForNone()}, {2, Stopped(0)}};
  EXPECT_THAT(AwaitedRanks(unknown), ElementsAre(2));
  EXPECT_THAT(AwaitedRanks({{0, WaitsForUnknown()}, {1, WaitsForNone()}}),
              ElementsAre(1));
  EXPECT_THAT(AwaitedRanks({{0, WaitsForNone()}, {1, WaitsForNone()}}),
              IsEmpty());
  EXPECT_THAT(AwaitedRanks({{0, DoesNotTell()}, {1, DoesNotTell()}}),
              IsEmpty());
  EXPECT_THAT(AwaitedRanks({}), IsEmpty());
}

// As where a host has no memory left and runs no thread in time.
TEST(AwaitedRanksTest, WhereNoneIsResponsiveNoneIsNamed) {
  EXPECT_THAT(AwaitedRanks({{0, Stopped(1)}, {1, Stopped(0)}}), IsEmpty());
}

// From outside: a peer that is no rank of the gang.
TEST(AwaitedRanksTest, APeerThatIsNotThereLeadsNowhere) {
  EXPECT_THAT(AwaitedRanks({{0, WaitsFor(9)}, {1, WaitsFor(0)}}), IsEmpty());
  EXPECT_THAT(AwaitedRanks({{0, WaitsFor(9)}, {1, Stopped(0)}}),
              ElementsAre(1));
}

TEST(AwaitedRanksTest, OnlyAProcessThatRunsWaits) {
  EXPECT_TRUE(IsWaiting(WaitsFor(1)));
  EXPECT_TRUE(IsWaiting(WaitsForUnknown()));
  EXPECT_FALSE(IsWaiting(WaitsForNone()));
  EXPECT_FALSE(IsWaiting(Stopped(1)));
  EXPECT_FALSE(IsWaiting(DoesNotTell()));
}

}  // namespace
}  // namespace lockstep::server
