#include "server/notify/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class OutboxTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-outbox-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  Outbox Open(const OutboxLimits& limits = {}) {
    Outbox outbox(RealFileSystem(), JoinPath(dir_, "r"), limits);
    EXPECT_TRUE(outbox.Load().ok());
    return outbox;
  }
  Notification At(Duration after) const {
    Notification n;
    n.time = now_.wall + after;
    n.kind = NotificationKind::kFailed;
    n.id = "uid-failed-" + std::to_string(ToUnixNanos(n.time));
    n.text = "it failed";
    return n;
  }
  std::optional<Notification> Next(Outbox* outbox) {
    return outbox->Next(now_, &dropped_);
  }

  std::string dir_;
  Time now_{MonoTime(10h), WallTime(500000h)};
  size_t dropped_ = 0;
};

TEST_F(OutboxTest, TheOldestComesFirstAndOutlivesARestart) {
  {
    Outbox outbox = Open();
    ASSERT_TRUE(outbox.Add(At(-1s)).ok());
    ASSERT_TRUE(outbox.Add(At(-3s)).ok());
    ASSERT_TRUE(outbox.Add(At(-3s)).ok());
    EXPECT_EQ(outbox.size(), 2u) << "none is added twice";
  }
  Outbox outbox = Open();
  EXPECT_EQ(outbox.oldest(), now_.wall - 3s);
  ASSERT_TRUE(Next(&outbox));
  EXPECT_EQ(*Next(&outbox), At(-3s));
  outbox.Remove(At(-3s));
  EXPECT_EQ(*Next(&outbox), At(-1s));
  outbox.Remove(At(-1s));
  EXPECT_EQ(Next(&outbox), std::nullopt);
  EXPECT_EQ(Open().size(), 0u);
  EXPECT_EQ(dropped_, 0u);
}

TEST_F(OutboxTest, AfterAFailureItWaitsLongerAndLonger) {
  Outbox outbox = Open();
  ASSERT_TRUE(outbox.Add(At(-1s)).ok());
  Duration waited{};
  for (const Duration wait : {5s, 10s, 20s}) {
    outbox.Failed(now_.mono);
    now_.mono += wait - 1s;
    EXPECT_EQ(Next(&outbox), std::nullopt) << waited / 1s;
    now_.mono += 1s;
    EXPECT_TRUE(Next(&outbox)) << waited / 1s;
    waited += wait;
  }
  for (int i = 0; i < 20; ++i) outbox.Failed(now_.mono);
  now_.mono += 10min;
  EXPECT_TRUE(Next(&outbox)) << "10 min at the most";
  // A success forgets the failures.
  outbox.Remove(At(-1s));
  ASSERT_TRUE(outbox.Add(At(0s)).ok());
  EXPECT_TRUE(Next(&outbox));
}

TEST_F(OutboxTest, WhatIsTooOldOrTooManyIsGivenUp) {
  OutboxLimits limits;
  limits.count = 2;
  Outbox outbox = Open(limits);
  ASSERT_TRUE(outbox.Add(At(-3s)).ok());
  ASSERT_TRUE(outbox.Add(At(-2s)).ok());
  const auto dropped = outbox.Add(At(-1s));
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(*dropped, 1u);
  EXPECT_EQ(outbox.oldest(), now_.wall - 2s);
  now_.wall += 24h - 1500ms;
  EXPECT_EQ(Next(&outbox)->text, "it failed");
  EXPECT_EQ(dropped_, 1u) << "the one of 2 s before";
  EXPECT_EQ(outbox.size(), 1u);
}

TEST_F(OutboxTest, DamagedFilesAreLeftAlone) {
  const std::string dir = JoinPath(dir_, "r");
  ASSERT_TRUE(RealFileSystem()->MakeDirs(dir).ok());
  for (const char* name : {"00000000000000000001.a", "x.tmp"}) {
    ASSERT_TRUE(RealFileSystem()->WriteAtomic(JoinPath(dir, name), "{").ok());
  }
  Outbox outbox = Open();
  EXPECT_EQ(outbox.size(), 0u);
  EXPECT_TRUE(RealFileSystem()->Exists(JoinPath(dir, "x.tmp")));
}

}  // namespace
}  // namespace lockstep::server
