#include "server/notify/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>

#include "server/core/testing.h"
#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class DispatcherTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-dispatcher-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    job_.spec = NativeSpec("j", 1);
    job_.uid = "u1";
  }
  void TearDown() override {
    dispatcher_.reset();
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Start() {
    DispatcherOptions options;
    options.dir = JoinPath(dir_, "notify");
    for (const char* name : {"good", "bad"}) {
      options.receivers.all.emplace_back().name = name;
    }
    options.receivers.all.back().kinds = {NotificationKind::kFailed};
    options.interval = 1ms;
    options.view = [this](Duration) {
      std::lock_guard lock(mu_);
      ++looks_;
      changed_.notify_all();
      CoordinatorView view;
      view.time = clock_.Now();
      JobSnapshot snapshot;
      snapshot.job = std::make_shared<const Job>(job_);
      view.jobs.push_back({std::move(snapshot), std::nullopt});
      return view;
    };
    options.deliver = [this](const Receiver& receiver, const Notification& n,
                             WallTime, const std::atomic<bool>&) {
      if (receiver.name == "bad" && meanwhile_) meanwhile_();
      std::lock_guard lock(mu_);
      changed_.notify_all();
      if (receiver.name == "bad") {
        ++tries_;
        return answer_;
      }
      got_.push_back(n);
      return OkStatus();
    };
    auto dispatcher =
        Dispatcher::Start(std::move(options), RealFileSystem(), &clock_);
    ASSERT_TRUE(dispatcher.ok()) << dispatcher.status();
    dispatcher_ = *std::move(dispatcher);
  }
  void Fail() {
    std::lock_guard lock(mu_);
    clock_.Advance(1s);
    job_.state = JobState::kFailed;
    job_.end_time = clock_.Now().wall;
    job_.cause.message = "it broke";
    clock_.Advance(1s);
  }
  template <typename Holds>
  bool Wait(Holds holds) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, 20s, holds);
  }
  // Two whole looks from now.
  bool WaitForLooks() {
    int begun = 0;
    {
      std::lock_guard lock(mu_);
      begun = looks_;
    }
    return Wait([&] { return looks_ >= begun + 3; });
  }
  ReceiverStats StatsOf(size_t index) { return dispatcher_->Stats().at(index); }

  std::string dir_;
  FakeClock clock_;
  std::mutex mu_;
  std::condition_variable changed_;
  Job job_;
  int looks_ = 0;
  int tries_ = 0;
  Status answer_ = Unavailable("busy");
  std::vector<Notification> got_;
  // Called while a notification is delivered to "bad".
  std::function<void()> meanwhile_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

TEST_F(DispatcherTest, OneThatIsAwayDelaysNoOtherAndIsTriedAgain) {
  Start();
  ASSERT_TRUE(WaitForLooks());
  Fail();
  ASSERT_TRUE(Wait([&] { return got_.size() == 1 && tries_ == 1; }));
  EXPECT_EQ(got_[0].text, "it broke");
  ASSERT_TRUE(WaitForLooks());
  EXPECT_EQ(got_.size(), 1u) << "once";
  EXPECT_EQ(StatsOf(0).sent, 1u);
  EXPECT_EQ(StatsOf(1).waiting, 1u);
  EXPECT_EQ(StatsOf(1).failed, 1u);
  EXPECT_NE(StatsOf(1).oldest, std::nullopt);
  {
    std::lock_guard lock(mu_);
    answer_ = OkStatus();
  }
  clock_.Advance(5s);
  ASSERT_TRUE(Wait([&] { return tries_ == 2; }));
  dispatcher_.reset();
  EXPECT_TRUE(RealFileSystem()->List(JoinPath(dir_, "notify/bad"))->empty());
}

TEST_F(DispatcherTest, WhatIsRefusedForGoodIsGivenUp) {
  answer_ = FailedPrecondition("no");
  Start();
  ASSERT_TRUE(WaitForLooks());
  Fail();
  ASSERT_TRUE(Wait([&] { return tries_ == 1; }));
  dispatcher_.reset();
  EXPECT_TRUE(RealFileSystem()->List(JoinPath(dir_, "notify/bad"))->empty());
}

TEST_F(DispatcherTest, ARestartLosesAndRepeatsNothing) {
  Start();
  ASSERT_TRUE(WaitForLooks());
  Fail();
  ASSERT_TRUE(Wait([&] { return got_.size() == 1 && tries_ >= 1; }));
  dispatcher_.reset();
  // What waits is tried at once, and what was sent is not sent again.
  tries_ = 0;
  Start();
  ASSERT_TRUE(Wait([&] { return tries_ >= 1; }));
  ASSERT_TRUE(WaitForLooks());
  EXPECT_EQ(got_.size(), 1u);
  dispatcher_.reset();
  // What happened while it was away.
  {
    std::lock_guard lock(mu_);
    job_.uid = "u2";
    job_.end_time = clock_.Now().wall + 1s;
    clock_.Advance(60s);
  }
  Start();
  ASSERT_TRUE(Wait([&] { return got_.size() == 2; }));
  EXPECT_NE(got_[0].id, got_[1].id);
}

TEST_F(DispatcherTest, ReceiversChangeWhileItRuns) {
  Start();
  ASSERT_TRUE(WaitForLooks());
  Fail();
  ASSERT_TRUE(Wait([&] { return got_.size() == 1 && tries_ == 1; }));
  {
    std::lock_guard lock(mu_);
    answer_ = OkStatus();
  }
  Receivers receivers;
  for (const char* name : {"new", "bad", "good"}) {
    receivers.all.emplace_back().name = name;
  }
  ASSERT_TRUE(dispatcher_->SetReceivers(receivers).ok());
  ASSERT_TRUE(Wait([&] { return tries_ == 2; })) << "what waited for it";
  EXPECT_EQ(StatsOf(0).name, "new");
  EXPECT_EQ(StatsOf(0).sent, 0u) << "what was before it is no news to it";
  EXPECT_EQ(StatsOf(2).name, "good");
  {
    std::lock_guard lock(mu_);
    job_.uid = "u2";
    job_.end_time = clock_.Now().wall + 1s;
    clock_.Advance(60s);
  }
  ASSERT_TRUE(Wait([&] { return got_.size() == 3 && tries_ == 3; }));
  receivers.all.resize(1);
  ASSERT_TRUE(dispatcher_->SetReceivers(receivers).ok());
  EXPECT_EQ(dispatcher_->Stats().size(), 1u);
}

// It fails with the settings of before, and the new ones may be right.
TEST_F(DispatcherTest, SettingsThatChangeDuringADeliveryAreTriedAtOnce) {
  for (const Status& answer : {Unavailable("busy"), FailedPrecondition("no")}) {
    answer_ = answer;
    tries_ = 0;
    std::atomic<bool> first = true;
    meanwhile_ = [&] {
      if (!first.exchange(false)) return;
      Receivers receivers;
      for (const char* name : {"good", "bad"}) {
        receivers.all.emplace_back().name = name;
      }
      EXPECT_TRUE(dispatcher_->SetReceivers(receivers).ok());
    };
    Start();
    ASSERT_TRUE(WaitForLooks());
    Fail();
    EXPECT_TRUE(Wait([&] { return tries_ == 2; }));
    dispatcher_.reset();
    ASSERT_TRUE(RealFileSystem()->RemoveAll(JoinPath(dir_, "notify")).ok());
    job_.state = JobState::kRunning;
  }
}

TEST_F(DispatcherTest, AReceiverWithoutAFolderIsRefused) {
  Start();
  ASSERT_TRUE(RealFileSystem()
                  ->WriteAtomic(JoinPath(dir_, "notify/new"), "a file", 0600)
                  .ok());
  Receivers receivers;
  for (const char* name : {"new", "good"}) {
    receivers.all.emplace_back().name = name;
  }
  const Status status = dispatcher_->SetReceivers(receivers);
  EXPECT_THAT(status.ToString(), testing::HasSubstr("receiver new"));
  ASSERT_EQ(dispatcher_->Stats().size(), 2u) << "as before";
  EXPECT_EQ(StatsOf(1).name, "bad");
}

TEST_F(DispatcherTest, AFirstRunWithoutNewsIsRemembered) {
  Start();
  dispatcher_.reset();
  Fail();
  Start();
  ASSERT_TRUE(Wait([&] { return got_.size() == 1; }));
}

TEST_F(DispatcherTest, WhatWasBeforeItsFirstStartIsNoNews) {
  Fail();
  Start();
  ASSERT_TRUE(WaitForLooks());
  EXPECT_TRUE(got_.empty());
}

}  // namespace
}  // namespace lockstep::server
