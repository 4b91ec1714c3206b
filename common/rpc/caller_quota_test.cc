#include "common/rpc/caller_quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

const pki::Identity kAnn =
    UserIdentity("test", pki::UserRole::kSubmitter, "ann");
const pki::Identity kBob =
    UserIdentity("test", pki::UserRole::kSubmitter, "bob");

class CallerQuotaTest : public testing::Test {
 protected:
  Status Admit(const pki::Identity& caller, CallKind kind = CallKind::kUnary) {
    return quota_.Admit(caller, kind, now_, &first_);
  }

  CallerQuota quota_{{.calls_per_second = 10,
                      .burst = 20,
                      .open_calls = 3,
                      .open_streams = 5}};
  MonoTime now_ = MonotonicNow();
  bool first_ = false;
};

TEST_F(CallerQuotaTest, ABurstThenTheRate) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Admit(kAnn).ok()) << i;
  const Status refused = Admit(kAnn);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
  EXPECT_THAT(Message(refused), testing::HasSubstr("user ann"));
  now_ += 100ms;
  EXPECT_TRUE(Admit(kAnn).ok());
  EXPECT_FALSE(Admit(kAnn).ok());
  // Never more than a burst.
  now_ += std::chrono::hours(1);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Admit(kAnn).ok()) << i;
  EXPECT_FALSE(Admit(kAnn).ok());
}

TEST_F(CallerQuotaTest, EachCallerHasItsOwn) {
  while (Admit(kAnn).ok()) {
  }
  EXPECT_TRUE(Admit(kBob).ok());
}

TEST_F(CallerQuotaTest, OpenCallsAreCounted) {
  for (int i = 0; i < 3; ++i) quota_.Begin(kAnn, CallKind::kUnary);
  const Status refused = Admit(kAnn);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_OPEN_CALLS");
  EXPECT_TRUE(Admit(kBob).ok());
  quota_.End(kAnn, CallKind::kUnary);
  EXPECT_TRUE(Admit(kAnn).ok());
}

TEST_F(CallerQuotaTest, StreamsAreCountedApart) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(Admit(kAnn, CallKind::kStream).ok()) << i;
    quota_.Begin(kAnn, CallKind::kStream);
  }
  EXPECT_EQ(ReasonOf(Admit(kAnn, CallKind::kStream)), "TOO_MANY_OPEN_STREAMS");
  EXPECT_TRUE(Admit(kAnn).ok()) << "streams leave the other calls alone";
  quota_.End(kAnn, CallKind::kStream);
  EXPECT_TRUE(Admit(kAnn, CallKind::kStream).ok());
}

TEST_F(CallerQuotaTest, OneRefusalASecondIsWorthALine) {
  while (Admit(kAnn).ok()) EXPECT_FALSE(first_);
  EXPECT_TRUE(first_);
  EXPECT_FALSE(Admit(kAnn).ok());
  EXPECT_FALSE(first_);
  now_ += 1s;
  while (Admit(kAnn).ok()) {
  }
  EXPECT_TRUE(first_);
}

TEST_F(CallerQuotaTest, WhoIsGoneIsForgotten) {
  quota_.Begin(kBob, CallKind::kUnary);
  for (int i = 0; i < 5000; ++i) {
    EXPECT_TRUE(
        Admit(pki::WorkerIdentity("test", "node-" + std::to_string(i))).ok());
    now_ += 10ms;
  }
  EXPECT_LE(quota_.size(), 4097u);
  // Who has a call open stays.
  quota_.Begin(kBob, CallKind::kUnary);
  quota_.Begin(kBob, CallKind::kUnary);
  EXPECT_FALSE(Admit(kBob).ok());
}

TEST_F(CallerQuotaTest, OnLoopbackNobodyIsToldApart) {
  for (int i = 0; i < 1000; ++i)
    EXPECT_TRUE(Admit(pki::InsecureIdentity()).ok());
}

}  // namespace
}  // namespace lockstep
