#include "server/stream/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "server/stream/users_test_util.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""h;

struct Peer final : StreamPeer {
  void Wake() override { ++woken; }
  bool IsCancelled() const override { return cancelled; }
  void Cancel() override { cancelled = true; }
  int woken = 0;
  bool cancelled = false;
};

TurnLimits Limits(int at_once, int of_caller, int waiting = 256) {
  TurnLimits limits;
  limits.at_once = at_once;
  limits.of_caller = of_caller;
  limits.waiting = waiting;
  limits.patience = 1h;
  return limits;
}

bool Has(Turns::Turn* turn) {
  const auto taken = turn->Take();
  return taken && taken->ok();
}

TEST(TurnsTest, WhoLeavesWakesTheFirstWhoseTurnItIs) {
  Turns turns("uploads", Limits(2, 1));
  Peer peer, second, third, fourth;
  auto ann = std::make_unique<Turns::Turn>(&turns, kAnn, &peer);
  auto bob = std::make_unique<Turns::Turn>(&turns, kBob, &peer);
  EXPECT_TRUE(Has(ann.get()));
  Turns::Turn again(&turns, kAnn, &second);
  Turns::Turn cid(&turns, kCid, &third);
  EXPECT_FALSE(again.Take());
  EXPECT_FALSE(cid.Take());
  // Ann has all that is hers, so it is the other's turn.
  bob.reset();
  EXPECT_EQ(second.woken, 0);
  EXPECT_EQ(third.woken, 1);
  EXPECT_TRUE(Has(&cid));
  ann.reset();
  EXPECT_EQ(second.woken, 1);
  EXPECT_TRUE(Has(&again));
}

TEST(TurnsTest, UsersKeepNoAdminWaiting) {
  Turns turns("uploads", Limits(1, 1, 1));
  Peer peer;
  Turns::Turn ann(&turns, kAnn, &peer);
  Turns::Turn bob(&turns, kBob, &peer);
  EXPECT_FALSE(bob.Take());
  Turns::Turn cid(&turns, kCid, &peer);
  ASSERT_TRUE(cid.Take());
  EXPECT_EQ(ReasonOf(*cid.Take()), "BUSY") << "one waits already";
  Turns::Turn root(&turns, kRoot, &peer);
  EXPECT_TRUE(Has(&root));
}

TEST(TurnsTest, OneCallerDoesNotTakeAllPlacesOfItsRole) {
  Turns turns("uploads", Limits(2, 1));
  Peer peer;
  std::vector<std::unique_ptr<Turns::Turn>> own;
  int waiting = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    own.push_back(std::make_unique<Turns::Turn>(&turns, kBob, &peer));
    const auto taken = own.back()->Take();
    if (!taken) {
      ++waiting;
    } else if (!taken->ok()) {
      ++refused;
      EXPECT_EQ(ReasonOf(*taken), "BUSY");
    }
  }
  EXPECT_EQ(waiting, 4);
  EXPECT_EQ(refused, 295);
  Turns::Turn cid(&turns, kCid, &peer);
  ASSERT_TRUE(Has(&cid));
  Turns::Turn ann(&turns, kAnn, &peer);
  EXPECT_FALSE(ann.Take()) << "there is a place for the other one";
}

TEST(TurnsTest, WhoStandsStillIsCancelled) {
  Turns turns("uploads", Limits(2, 1));
  Peer stands, waits;
  Turns::Turn ann(&turns, kAnn, &stands);
  Turns::Turn again(&turns, kAnn, &waits);
  const MonoTime now = MonotonicNow();
  turns.CancelIdle(now - 1h);
  EXPECT_FALSE(stands.cancelled);
  turns.CancelIdle(now + 1h);
  EXPECT_TRUE(stands.cancelled);
  EXPECT_FALSE(waits.cancelled) << "it has a deadline of its own";
}

}  // namespace
}  // namespace lockstep
