// The interpreters of a node, with real ones.
#include "worker/agent/warm/warm_ranks.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "worker/shim/shim_fixture.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using testing::SizeIs;

class SettableTime final : public Clock {
 public:
  Time Now() const override { return now_; }
  void Advance(Duration d) {
    now_.mono += d;
    now_.wall += d;
  }

 private:
  Time now_{MonoTime(1h), WallTime(1h)};
};

// Rank R of a job runs the program R % 2, on a node that has prepared.
class WarmRanksTest : public shim::ShimTest {
 protected:
  void SetUp() override {
    ShimTest::SetUp();
    for (const char* const name : {"0.py", "1.py"}) {
      std::ofstream(Path(name)) << "import time\n";
    }
    loop_ = *EventLoop::Create(&clock_);
    core_ = std::make_unique<CoreRunner>(AgentOptions{.node = "a"}, loop_.get(),
                                         [](const Actions&) {});
    WarmRanks::Parts parts;
    parts.loop = loop_.get();
    parts.core = core_.get();
    parts.files = RealFileSystem();
    parts.cgroups = &cgroups_;
    parts.shim_program = program_;
    parts.dir = Path("warm");
    parts.sample = [this](const RankRef& ref) -> StatusOr<WarmSample> {
      ++samples_;
      if (!can_sample_) return FailedPrecondition("not today");
      WarmSample sample = SampleOf(ref.rank);
      if (others_.contains(ref.rank)) sample.spec.argv = {"/bin/sh", "x.sh"};
      return sample;
    };
    warm_ = std::make_unique<WarmRanks>(parts);
  }
  void TearDown() override {
    warm_.reset();
    ShimTest::TearDown();
  }

  WarmSample SampleOf(int32_t rank) {
    task::ShimSpec spec = Spec("");
    spec.argv = {broken_.empty() ? "python3" : broken_,
                 Path(rank % 2 == 0 ? "0.py" : "1.py")};
    return {spec, Resources()};
  }
  // The node prepares as a spare for these ranks.
  void Prepare(std::vector<int32_t> ranks, Goal goal = Goal::kPrepare) {
    Assignment a;
    a.job = "j";
    a.job_uid = "uid";
    a.generation = 1;
    a.epoch = 1;
    a.goal = goal;
    LocalTask task;
    task.argv = {"python3"};
    for (const int32_t rank : ranks) task.ranks.push_back({rank, 0, {}});
    a.spec.emplace();
    a.spec->kind = JobKind::kProgram;
    a.spec->tasks = {task};
    a.spec->warm_starts = true;
    a.cluster.emplace();
    core_->Tell([&](AgentCore* core, Actions* out) {
      ASSERT_TRUE(core->OnAssignment(a, clock_.Now(), out).ok());
      core->OnPrepared({"j", 1}, {{8000}, 0}, clock_.Now(), out);
    });
  }
  bool AwaitReady(int64_t count) {
    return shim::Eventually([&] {
      warm_->Tick();
      return warm_->ready() == count;
    });
  }
  bool Takes(int32_t rank) {
    WarmSample sample = SampleOf(rank);
    return warm_->Take("uid", &sample).has_value();
  }

  SettableTime clock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<CoreRunner> core_;
  RankCgroups cgroups_{nullptr};
  int samples_ = 0;
  bool can_sample_ = true;
  // Ranks that run another program than Python.
  std::set<int32_t> others_;
  // An interpreter to use instead.
  std::string broken_;
  std::unique_ptr<WarmRanks> warm_;
};

TEST_F(WarmRanksTest, EachRankOfASpareHasOneAndGetsAnother) {
  Prepare({0, 1});
  ASSERT_TRUE(AwaitReady(2));
  EXPECT_TRUE(Takes(0));
  EXPECT_FALSE(Takes(0)) << "the other one runs another program";
  EXPECT_EQ(warm_->starts(), 1u);
  ASSERT_TRUE(AwaitReady(2));
  EXPECT_TRUE(Takes(0)) << "that program was missing";
  EXPECT_TRUE(Takes(1));
}

TEST_F(WarmRanksTest, ThoseThatNoRankCanUseAnyMoreGo) {
  Prepare({0, 2});
  ASSERT_TRUE(AwaitReady(2));
  Prepare({1, 2});
  ASSERT_TRUE(shim::Eventually([&] {
    warm_->Tick();
    return warm_->ready() == 2 && samples_ >= 4;
  }));
  EXPECT_TRUE(Takes(1));
  EXPECT_TRUE(Takes(2));
}

TEST_F(WarmRanksTest, TheyGoSecondsAfterTheLastGang) {
  Prepare({0});
  ASSERT_TRUE(AwaitReady(1));
  core_->Tell([&](AgentCore* core, Actions* out) {
    Assignment stop;
    stop.job = "j";
    stop.generation = 1;
    stop.epoch = 1;
    stop.goal = Goal::kStop;
    ASSERT_TRUE(core->OnAssignment(stop, clock_.Now(), out).ok());
    stop.goal = Goal::kForget;
    ASSERT_TRUE(core->OnAssignment(stop, clock_.Now(), out).ok());
  });
  clock_.Advance(4s);
  warm_->Tick();
  EXPECT_EQ(warm_->ready(), 1) << "a gang that restarts comes back at once";
  clock_.Advance(2s);
  warm_->Tick();
  EXPECT_EQ(warm_->ready(), 0);
}

TEST_F(WarmRanksTest, OneThatCannotStartWarmDoesNotKeepTheOthersFromIt) {
  others_.insert(0);
  Prepare({0, 1});
  ASSERT_TRUE(AwaitReady(1));
  const int asked = samples_;
  for (int i = 0; i < 10; ++i) warm_->Tick();
  EXPECT_EQ(samples_, asked);
  EXPECT_TRUE(Takes(1));
  ASSERT_TRUE(AwaitReady(1)) << "again";
}

TEST_F(WarmRanksTest, WhatCannotStartWarmIsAskedSeldom) {
  can_sample_ = false;
  Prepare({0});
  for (int i = 0; i < 10; ++i) warm_->Tick();
  EXPECT_EQ(samples_, 1);
  clock_.Advance(1h);
  can_sample_ = true;
  EXPECT_TRUE(AwaitReady(1));
}

TEST_F(WarmRanksTest, OneThatEndsIsFollowedByAnotherAfterAWait) {
  const std::string python = Path("python3");
  std::ofstream(python) << "#!/bin/sh\nexit 1\n";
  ASSERT_EQ(chmod(python.c_str(), 0755), 0);
  broken_ = python;
  Prepare({0});
  ASSERT_TRUE(shim::Eventually([&] {
    warm_->Tick();
    return warm_->failures() == 1;
  }));
  broken_.clear();
  const int asked = samples_;
  for (int i = 0; i < 10; ++i) warm_->Tick();
  EXPECT_EQ(samples_, asked) << "not yet";
  clock_.Advance(11s);
  EXPECT_TRUE(AwaitReady(1));
}

TEST_F(WarmRanksTest, ClearRemovesTheNotesOfAnEarlierDaemon) {
  ASSERT_TRUE(RealFileSystem()->MakeDirs(Path("warm"), 0700).ok());
  std::ofstream(Path("warm/0123")) << "";
  warm_->Clear();
  EXPECT_THAT(RealFileSystem()->List(Path("warm")).value(), SizeIs(0));
}

}  // namespace
}  // namespace lockstep::worker::agent
