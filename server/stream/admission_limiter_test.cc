#include "server/stream/admission_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "server/stream/users_test_util.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;

struct Peer final : StreamPeer {
  void Wake() override { ++woken; }
  bool IsCancelled() const override { return cancelled; }
  void Cancel() override { cancelled = true; }
  int woken = 0;
  bool cancelled = false;
};

AdmissionLimits Limits(int concurrent, int per_caller, int waiting = 256) {
  AdmissionLimits limits;
  limits.concurrent = concurrent;
  limits.per_caller = per_caller;
  limits.waiting = waiting;
  limits.patience = 1h;
  return limits;
}

bool Has(AdmissionLimiter::Ticket* ticket) {
  const auto admitted = ticket->Poll();
  return admitted && admitted->ok();
}

TEST(AdmissionLimiterTest, TheEndOfACallAdmitsTheNextThatFits) {
  AdmissionLimiter limiter("uploads", Limits(2, 1));
  Peer peer, second, third, fourth;
  auto ann = std::make_unique<AdmissionLimiter::Ticket>(&limiter, kAnn, &peer);
  auto bob = std::make_unique<AdmissionLimiter::Ticket>(&limiter, kBob, &peer);
  EXPECT_TRUE(Has(ann.get()));
  AdmissionLimiter::Ticket again(&limiter, kAnn, &second);
  AdmissionLimiter::Ticket cid(&limiter, kCid, &third);
  EXPECT_FALSE(again.Poll());
  EXPECT_FALSE(cid.Poll());
  // Ann is at her limit, so Cid is admitted.
  bob.reset();
  EXPECT_EQ(second.woken, 0);
  EXPECT_EQ(third.woken, 1);
  EXPECT_TRUE(Has(&cid));
  ann.reset();
  EXPECT_EQ(second.woken, 1);
  EXPECT_TRUE(Has(&again));
}

TEST(AdmissionLimiterTest, UsersDoNotDelayAdmins) {
  AdmissionLimiter limiter("uploads", Limits(1, 1, 1));
  Peer peer;
  AdmissionLimiter::Ticket ann(&limiter, kAnn, &peer);
  AdmissionLimiter::Ticket bob(&limiter, kBob, &peer);
  EXPECT_FALSE(bob.Poll());
  AdmissionLimiter::Ticket cid(&limiter, kCid, &peer);
  ASSERT_TRUE(cid.Poll());
  EXPECT_EQ(ReasonOf(*cid.Poll()), "BUSY") << "the queue is full";
  AdmissionLimiter::Ticket root(&limiter, kRoot, &peer);
  EXPECT_TRUE(Has(&root));
}

TEST(AdmissionLimiterTest, OneCallerDoesNotFillItsRolesQueue) {
  AdmissionLimiter limiter("uploads", Limits(2, 1));
  Peer peer;
  std::vector<std::unique_ptr<AdmissionLimiter::Ticket>> own;
  int waiting = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    own.push_back(
        std::make_unique<AdmissionLimiter::Ticket>(&limiter, kBob, &peer));
    const auto admitted = own.back()->Poll();
    if (!admitted) {
      ++waiting;
    } else if (!admitted->ok()) {
      ++refused;
      EXPECT_EQ(ReasonOf(*admitted), "BUSY");
    }
  }
  EXPECT_EQ(waiting, 4);
  EXPECT_EQ(refused, 295);
  AdmissionLimiter::Ticket cid(&limiter, kCid, &peer);
  ASSERT_TRUE(Has(&cid));
  AdmissionLimiter::Ticket ann(&limiter, kAnn, &peer);
  EXPECT_FALSE(ann.Poll()) << "the queue has room for another caller";
}

TEST(AdmissionLimiterTest, IdleCallsAreCancelled) {
  AdmissionLimiter limiter("uploads", Limits(2, 1));
  Peer idle, waits;
  AdmissionLimiter::Ticket ann(&limiter, kAnn, &idle);
  AdmissionLimiter::Ticket again(&limiter, kAnn, &waits);
  const MonoTime now = MonotonicNow();
  limiter.CancelIdle(now - 1h);
  EXPECT_FALSE(idle.cancelled);
  limiter.CancelIdle(now + 1h);
  EXPECT_TRUE(idle.cancelled);
  EXPECT_FALSE(waits.cancelled) << "it has its own deadline";
}

}  // namespace
}  // namespace lockstep::server
