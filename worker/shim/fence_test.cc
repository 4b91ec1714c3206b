// The fence of a rank: the rule, and shims whose daemon renews it or does not.
#include "worker/shim/fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "common/os/process.h"
#include "worker/shim/shim_fixture.h"

namespace lockstep::worker::shim {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using task::ExitKind;
using task::ExitRecord;
using Phase = task::ShimReply::Phase;

constexpr int64_t kS = kNanosPerSecond;

TEST(FenceTest, TerminatesAndThenKillsBeforeTheTimeIsOver) {
  Fence fence;
  ASSERT_TRUE(fence.Begin(100 * kS));
  EXPECT_EQ(fence.Check(97 * kS), Fence::Due::kNothing);
  EXPECT_EQ(fence.Check(98 * kS), Fence::Due::kTerminate);
  EXPECT_EQ(fence.Check(98 * kS), Fence::Due::kNothing);
  EXPECT_EQ(fence.Check(99 * kS), Fence::Due::kKill);
  EXPECT_EQ(fence.Check(99 * kS), Fence::Due::kNothing);
}

TEST(FenceTest, ARenewalMovesItAndAnEarlierOneDoesNot) {
  Fence fence;
  ASSERT_TRUE(fence.Begin(100 * kS));
  fence.Renew(200 * kS);
  fence.Renew(150 * kS);
  EXPECT_EQ(fence.Check(197 * kS), Fence::Due::kNothing);
  EXPECT_EQ(fence.Check(198 * kS), Fence::Due::kTerminate);
  // What was told to end is not taken back.
  fence.Renew(300 * kS);
  EXPECT_EQ(fence.Check(199 * kS), Fence::Due::kKill);
}

TEST(FenceTest, AMachineThatSleptPastItKillsAtOnce) {
  Fence fence;
  ASSERT_TRUE(fence.Begin(100 * kS));
  EXPECT_EQ(fence.Check(5000 * kS), Fence::Due::kKill);
}

TEST(FenceTest, WithoutATimeNothingIsDue) {
  Fence fence;
  ASSERT_TRUE(fence.Begin(0));
  fence.Renew(100 * kS);
  EXPECT_EQ(fence.fd(), -1);
  EXPECT_EQ(fence.Check(1000 * kS), Fence::Due::kNothing);
}

// The timer is of the clock that goes on while a machine sleeps: no poll with a
// time of another clock is needed.
TEST(FenceTest, ItsTimerIsOfTheBootClock) {
  Fence fence;
  ASSERT_TRUE(fence.Begin(BootNanos() + kFenceKillTime + kFenceGrace +
                          50 * kNanosPerMilli));
  pollfd ready{fence.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 10'000), 1);
  EXPECT_EQ(fence.Check(BootNanos()), Fence::Due::kTerminate);
}

class FencedShimTest : public ShimTest {
 protected:
  // Runs until it is told to end.
  task::ShimSpec Fenced(Duration from_now, const std::string& on_term) {
    task::ShimSpec spec = Spec("trap '" + on_term +
                               "' TERM; echo $$ >$DIR/pid; "
                               "while :; do sleep 0.01; done");
    spec.fence_nanos = BootNanos() + from_now.count();
    return spec;
  }
};

TEST_F(FencedShimTest, WithoutADaemonTheRankEndsInTime) {
  const task::ShimSpec spec = Fenced(2500ms, "");
  const ExitRecord record = RunToEnd(spec);
  EXPECT_TRUE(record.fenced);
  EXPECT_EQ(record.kind, ExitKind::kSignaled);
  EXPECT_EQ(record.message, task::kFencedMessage);
  // Both clocks are equal on a machine that did not sleep since its boot, and
  // as far apart before as after otherwise.
  const int64_t apart = BootNanos() - MonoNanos();
  EXPECT_LE(record.end_mono_nanos + apart, spec.fence_nanos);
}

TEST_F(FencedShimTest, AProgramThatEndsWithNothingWrongIsFencedAllTheSame) {
  const ExitRecord record = RunToEnd(Fenced(2100ms, "exit 0"));
  EXPECT_TRUE(record.fenced);
  EXPECT_EQ(ExitCode(record), 0);
  EXPECT_EQ(record.message, task::kFencedMessage);
}

TEST_F(FencedShimTest, WhatTheRankHasStartedEndsWithIt) {
  task::ShimSpec spec = Spec(
      "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >$DIR/child; "
      "while :; do sleep 0.01; done' & while :; do sleep 0.01; done");
  spec.fence_nanos = BootNanos() + 2500 * kNanosPerMilli;
  Start(spec);
  const auto child = ProcessIn("child");
  ASSERT_TRUE(child.ok());
  EXPECT_TRUE(Eventually([&] { return BootNanos() > spec.fence_nanos; }));
  EXPECT_FALSE(OpenVerified(child->id).ok());
}

TEST_F(FencedShimTest, ADaemonThatRenewsKeepsItAlive) {
  const task::ShimSpec spec = Fenced(2300ms, "exit 5");
  Start(spec);
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  int64_t until = spec.fence_nanos;
  while (BootNanos() < spec.fence_nanos + 100 * kNanosPerMilli) {
    until = BootNanos() + 3 * kS;
    const auto reply = client->Fence(until, In(5s));
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_LE(reply->phase, Phase::kRunning);
    pollfd push{client->fd(), POLLIN, 0};
    (void)poll(&push, 1, 100);
  }
  // Now it does not renew any more, as one that was stopped.
  const auto reply = WaitForPhase(client.get(), Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->exit_record.fenced);
  EXPECT_GT(BootNanos(), until - kFenceKillTime - kFenceGrace);
}

TEST_F(FencedShimTest, AnOrderThatComesTooLateStartsNothing) {
  task::ShimSpec spec = Spec("echo ran >$DIR/ran");
  spec.fence_nanos = BootNanos() + kFenceKillTime;
  const ExitRecord record = RunToEnd(spec);
  EXPECT_TRUE(record.fenced);
  EXPECT_EQ(record.kind, ExitKind::kNotStarted);
  EXPECT_NE(access(Path("ran").c_str(), F_OK), 0);
}

TEST_F(FencedShimTest, ARankThatEndedByItselfIsNotFenced) {
  task::ShimSpec spec = Spec("exit 3");
  spec.fence_nanos = BootNanos() + 60 * kS;
  const ExitRecord record = RunToEnd(spec);
  EXPECT_FALSE(record.fenced);
  EXPECT_EQ(ExitCode(record), 3);
}

}  // namespace
}  // namespace lockstep::worker::shim
