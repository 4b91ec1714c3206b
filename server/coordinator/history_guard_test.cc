// A coordinator whose store is older than its nodes, because an operator
// restored it: nothing that it does not know is stopped.
#include <gmock/gmock.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class ReplacedHistoryTest : public CoordinatorTest {
 protected:
  // The coordinator is started on what `backup` holds; nodes went on.
  void RestartOn(const MemoryStore::Backup& backup) {
    for (FakeDaemon* daemon : all_) daemon->Disconnect();
    coordinator_.reset();
    store_.Restore(backup);
    Start();
    Connect(&a_);
    Connect(&b_);
    Run();
  }
  NodeSnapshot Node(const NodeName& name) {
    return *coordinator_->queries()->GetNode(name);
  }
};

TEST_F(ReplacedHistoryTest, AJobThatTheStoreNeverKnewGoesOn) {
  Connect(&a_);
  Connect(&b_);
  const MemoryStore::Backup backup = store_.MakeBackup();
  MustSubmit(Wide("precious"));
  Run();
  ASSERT_EQ(State("precious"), JobState::kRunning);
  const std::string uid = Get("precious").uid;
  RestartOn(backup);
  Pass(20s);
  for (FakeDaemon* daemon : all_) {
    ASSERT_NE(daemon->Find("precious"), nullptr);
    EXPECT_TRUE(FakeDaemon::Alive(*daemon->Find("precious")));
    const NodeSnapshot node = Node(daemon->info.name);
    ASSERT_THAT(node.unknown, SizeIs(1));
    EXPECT_EQ(node.unknown[0].job, "precious");
    EXPECT_EQ(node.unknown[0].job_uid, uid);
    EXPECT_THAT(node.member.message, HasSubstr("the store does not know"));
    EXPECT_EQ(node.member.events.back().reason, Reason::kNodeAhead);
  }
  EXPECT_EQ(coordinator_->sessions()
                ->CheckLog(a_.session(), "precious", uid, 1, 0, nullptr)
                .code(),
            StatusCode::kFailedPrecondition)
      << "its log is not thrown away";

  // Nothing is put beside it, and its name is taken.
  const auto again = Submit(Wide("precious"), "again");
  EXPECT_EQ(again.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(again.status()), HasSubstr("drain the node"));
  MustSubmit(Wide("next"));
  Run();
  EXPECT_EQ(State("next"), JobState::kQueued);

  // So it is after another start.
  Restart();
  Connect(&a_);
  Connect(&b_);
  Pass(20s);
  EXPECT_TRUE(FakeDaemon::Alive(*a_.Find("precious")));
  EXPECT_EQ(State("next"), JobState::kQueued);

  // It ends by itself: the nodes take work again.
  a_.Exit("precious", 0, ExitCode(0));
  b_.Exit("precious", 1, ExitCode(0));
  Pass(20s);
  EXPECT_THAT(Node("a").unknown, IsEmpty());
  EXPECT_EQ(State("next"), JobState::kRunning);
  EXPECT_GT(Get("next").generation, 1000u) << "lower ones may have been used";
}

TEST_F(ReplacedHistoryTest, ADrainWithAGraceEndsIt) {
  Connect(&a_);
  Connect(&b_);
  const MemoryStore::Backup backup = store_.MakeBackup();
  MustSubmit(Wide("precious"));
  Run();
  RestartOn(backup);
  ASSERT_TRUE(DrainNode("a").ok());
  Pass(20s);
  EXPECT_TRUE(FakeDaemon::Alive(*a_.Find("precious"))) << "without a grace";
  ASSERT_TRUE(DrainNode("a", 5s).ok());
  Pass(3s);
  EXPECT_TRUE(FakeDaemon::Alive(*a_.Find("precious")));
  Pass(10s);
  EXPECT_THAT(Node("a").unknown, IsEmpty());
  EXPECT_THAT(GoalsOf(a_, "precious"), Contains(Goal::kStop));
  EXPECT_THAT(GoalsOf(b_, "precious"), Not(Contains(Goal::kStop)));
}

TEST_F(ReplacedHistoryTest, ALaterGenerationOfAKnownJobIsWaitedFor) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  ASSERT_EQ(Get("j").generation, 1u);
  const MemoryStore::Backup backup = store_.MakeBackup();
  a_.Exit("j", 0, KilledBy(9));
  Pass(20s);
  ASSERT_EQ(State("j"), JobState::kRunning);
  ASSERT_EQ(Get("j").generation, 2u);
  RestartOn(backup);
  Pass(60s);
  for (FakeDaemon* daemon : all_) {
    ASSERT_NE(daemon->Find("j"), nullptr);
    EXPECT_EQ(daemon->Find("j")->status.generation, 2u);
    EXPECT_TRUE(FakeDaemon::Alive(*daemon->Find("j")));
  }
  const auto job = coordinator_->queries()->GetJob("j");
  EXPECT_FALSE(IsFinal(job->job->state));
  ASSERT_TRUE(job->waiting);
  EXPECT_EQ(job->waiting->reason, Reason::kNodeAhead);
  // When that has ended, the job goes on under a number that is new.
  a_.Exit("j", 0, ExitCode(1));
  b_.Exit("j", 1, ExitCode(1));
  Pass(60s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_GT(Get("j").generation, 1000u);
}

TEST_F(ReplacedHistoryTest, AGenerationThatIsKnownGoesOnAsIfNothingWas) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  const MemoryStore::Backup backup = store_.MakeBackup();
  RestartOn(backup);
  Pass(20s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  EXPECT_EQ(Get("j").generation, 1u);
  EXPECT_THAT(Node("a").unknown, IsEmpty());
}

// ---- Which store is the later one ----

TEST_F(ReplacedHistoryTest, WhatANodeObeyedTellsWhetherTheStoreIsOlder) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("one"));
  Run();
  const StorePoint first = coordinator_->sessions()->point();
  ASSERT_EQ(first.epoch, 1u);
  ASSERT_GT(first.version, 0);
  Restart();
  const StorePoint now = coordinator_->sessions()->point();
  ASSERT_EQ(now.epoch, 2u);
  const auto check = [&](const StorePoint& obeyed) {
    return coordinator_->sessions()->CheckObeyed("n", obeyed);
  };
  EXPECT_TRUE(check({}).ok()) << "it has obeyed no coordinator";
  EXPECT_TRUE(check({"", 2, 0}).ok()) << "of a daemon from before histories";
  EXPECT_TRUE(check(first).ok());
  EXPECT_TRUE(check(now).ok());
  // Copies of the same epoch, or of an earlier one, that went another way.
  EXPECT_THAT(Message(check({now.history, 2, now.version + 1})),
              HasSubstr(fmt::format("version {} of epoch 2", now.version + 1)));
  EXPECT_FALSE(check({now.history, 1, first.version + 1000}).ok());
  EXPECT_FALSE(check({now.history, 3, 0}).ok());
  EXPECT_FALSE(check({"", 3, 0}).ok());
  EXPECT_EQ(coordinator_->queries()->View({}).refused_by.at("n"), "epoch 3");
  // Another cluster's.
  const std::string other(kHistoryDigits, 'f');
  EXPECT_THAT(Message(check({other, 1, 0})), HasSubstr("history " + other));

  // Restored: the one before is obeyed over, and counts for nothing.
  for (FakeDaemon* daemon : all_) daemon->Disconnect();
  coordinator_.reset();
  store_.Restore(store_.MakeBackup());
  Start();
  EXPECT_NE(coordinator_->sessions()->point().history, now.history);
  EXPECT_TRUE(check({now.history, 99, 99'999}).ok());
  EXPECT_FALSE(check({other, 1, 0}).ok());
}

// An image of the coordinator's disk that was taken before the last start, and
// put back without a word.
TEST_F(ReplacedHistoryTest, AnImageIsRefusedAlsoOnceItHasCaughtUp) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("one"));
  Run();
  const MemoryStore::Backup image = store_.MakeBackup();
  Restart();
  Connect(&a_);
  Connect(&b_);
  const StorePoint obeyed = coordinator_->sessions()->point();
  ASSERT_EQ(obeyed.epoch, 2u);
  ASSERT_TRUE(IsHistory(obeyed.epoch_id));
  const auto check = [&] {
    return Message(coordinator_->sessions()->CheckObeyed("n", obeyed));
  };
  EXPECT_EQ(check(), "");

  for (FakeDaemon* daemon : all_) daemon->Disconnect();
  coordinator_.reset();
  store_.PutBack(image, 1);
  Start();
  ASSERT_EQ(coordinator_->sessions()->point().history, obeyed.history);
  ASSERT_EQ(coordinator_->sessions()->point().epoch, obeyed.epoch);
  EXPECT_THAT(check(), HasSubstr("has obeyed a coordinator of epoch 2"));
  // More than the other one ever committed, and as many starts.
  for (int i = 0; coordinator_->queries()->version() <= obeyed.version; ++i) {
    MustSubmit(Wide(fmt::format("later{}", i)));
  }
  EXPECT_THAT(check(), HasSubstr("epoch 2, which was another one there"));
  Restart();
  ASSERT_EQ(coordinator_->sessions()->point().epoch, 3u);
  EXPECT_THAT(check(), HasSubstr("epoch 2, which was another one there"));
  // A daemon that does not say which epoch it was is judged as before.
  StorePoint unknown = obeyed;
  unknown.epoch_id.clear();
  unknown.version = 0;
  EXPECT_TRUE(coordinator_->sessions()->CheckObeyed("m", unknown).ok());

  // The operator takes it as it is.
  coordinator_.reset();
  store_.Restore(store_.MakeBackup());
  Start();
  EXPECT_EQ(check(), "");
}

}  // namespace
}  // namespace lockstep::server
