// Programs whose ranks join their job, and programs that do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "worker/agent/agent_fixture.h"

namespace lockstep::worker::agent {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class AgentJoinTest : public AgentTest {
 protected:
  std::string Go() const { return dir_ + "/go"; }
  void SetGo() {
    EXPECT_TRUE(RealFileSystem()->WriteAtomic(Go(), "", 0600).ok());
  }
  // Of rank 0, in the newest heartbeat.
  RankProgress Progress() {
    return coordinator_.Locked([&] { return PeekProgress(); });
  }
  RankProgress PeekProgress() {
    if (coordinator_.beats.empty()) return {};
    const NodeHeartbeat& beat = coordinator_.beats.back();
    return beat.gangs.empty() ? RankProgress()
                              : beat.gangs[0].ranks[0].progress;
  }
  bool Shows(const std::string& phase, int64_t step) {
    return coordinator_.Eventually([&] {
      const RankProgress progress = PeekProgress();
      return progress.phase == phase && progress.committed_step >= step;
    });
  }
  std::vector<std::string> Light(std::vector<std::string> flags) {
    flags.insert(flags.begin(), AGENT_LIGHT_RANK);
    return flags;
  }
};

TEST_F(AgentJoinTest, AProgramThatJoinsIsSeenLikeANativeRank) {
  Launch(Light({"--until", Go()}));
  ASSERT_TRUE(Shows("compute", 3));
  const RankProgress progress = Progress();
  EXPECT_GE(progress.samples, 24);
  EXPECT_EQ(progress.loss, 0.5);
  EXPECT_EQ(progress.learning_rate, 0.1);
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return PeekProgress().values.contains("accuracy"); }));
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return Peek().checkpoint && !Peek().artifacts.empty() &&
           !Peek().events.empty();
  }));
  const GangStatus said = Reported();
  EXPECT_EQ(said.checkpoint->step, 3);
  EXPECT_EQ(said.checkpoint->path, "/out/3");
  EXPECT_EQ(said.artifacts.at("model"), "/out/model.pt");
  EXPECT_EQ(said.events[0].message, "half way");
  // Nothing is formed.
  EXPECT_EQ(said.ranks[0].state, RankState::kStarted);
  SetGo();
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(Reported().ranks[0].exit->ok());
  EXPECT_GE(Reported().ranks[0].progress.committed_step, 3);
  EXPECT_THAT(LogOf(0), HasSubstr("joined chief 0 rank 0 of 1"));
}

TEST_F(AgentJoinTest, AProgramThatDoesNotJoinIsAsBefore) {
  Launch({"/bin/sh", "-c",
          "echo $LOCKSTEP_LINK_FILE; while [ ! -e " + Go() +
              " ]; do sleep 0.02; done; exit 75"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  EXPECT_TRUE(coordinator_.Eventually([&] {
    return !coordinator_.beats.empty() &&
           !coordinator_.beats.back().gangs.empty();
  }));
  EXPECT_EQ(Progress().phase, "");
  EXPECT_EQ(Progress().committed_step, -1);
  // Its own user alone reads how to join.
  const std::string file = dir_ + "/tasks/job.g1/rank-0/link/file";
  struct stat info {};
  ASSERT_EQ(stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0400u);
  SetGo();
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Reported().ranks[0].exit->value, 75);
  EXPECT_FALSE(Reported().ranks[0].exit->victim);
  EXPECT_THAT(LogOf(0), HasSubstr(file));
}

// As "bash -c", torchrun and multiprocessing start their processes: without the
// descriptors that the rank's first process has.
TEST_F(AgentJoinTest, OneOfTheProcessesOfARankJoinsAtATime) {
  const std::string light = AGENT_LIGHT_RANK;
  Launch({"/bin/bash", "-c",
          "exec 3<&- 4<&-; " + light + " --until " + Go() + " > " + dir_ +
              "/first & until grep -q joined " + dir_ +
              "/first; do "
              "sleep 0.02; done; " +
              light + "; touch " + Go() + "; wait; " + light + "; exit 0"});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const std::string log = LogOf(0);
  EXPECT_THAT(log, HasSubstr("cannot join: the worker daemon refuses this "
                             "rank: process "));
  EXPECT_THAT(log, HasSubstr("one process of a rank may join at a time"));
  EXPECT_THAT(log, HasSubstr("joined chief 0 rank 0 of 1"));
}

TEST_F(AgentJoinTest, TheNextDaemonIsJoinedByItself) {
  Launch(Light({"--until", Go()}));
  ASSERT_TRUE(Shows("compute", 3));
  StartAgain();
  const int64_t step = Progress().committed_step;
  ASSERT_TRUE(Shows("compute", step + 5));
  ASSERT_TRUE(coordinator_.Eventually([&] { return bool{Peek().checkpoint}; }));
  SetGo();
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(Reported().ranks[0].exit->ok());
}

// Its page stands still, and nothing is wrong.
TEST_F(AgentJoinTest, ARankWhoseProcessHasEndedIsFinished) {
  Launch({"/bin/sh", "-c",
          std::string(AGENT_LIGHT_RANK) + " --until " + dir_ +
              "/never & sleep 0.3; kill -9 $!; while [ ! -e " + Go() +
              " ]; do sleep 0.02; done"});
  ASSERT_TRUE(Shows("finished", 3));
  SetGo();
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(Reported().ranks[0].exit->ok());
}

TEST_F(AgentJoinTest, ServersAndEvaluatorsMayJoin) {
  const auto order = [&](Goal goal) {
    Assignment a = Order(goal, Light({"--until", Go()}), JobKind::kProgram, 2);
    a.spec->tasks.push_back(a.spec->tasks[0]);
    a.spec->tasks[0].ranks = {{0, 0, {}}};
    a.spec->tasks[1].ranks = {{1, 0, {}}};
    a.spec->tasks[1].type = TaskType::kEvaluator;
    a.spec->tasks[1].index = 2;
    return a;
  };
  coordinator_.Send(order(Goal::kPrepare));
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  Assignment launch = order(Goal::kLaunch);
  const std::vector<int32_t> ports = Reported().ports;
  ASSERT_THAT(ports, SizeIs(2));
  launch.cluster->world_size = 1;
  launch.cluster->tasks = {
      {TaskType::kChief, 0, "node-a", fmt::format("127.0.0.1:{}", ports[0]),
       launch.spec->tasks[0].ranks},
      {TaskType::kEvaluator, 2, "node-a", fmt::format("127.0.0.1:{}", ports[1]),
       launch.spec->tasks[1].ranks}};
  coordinator_.Send(launch);
  ASSERT_TRUE(Shows("compute", 3));
  SetGo();
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(LogOf(1), HasSubstr("joined evaluator 2 rank -1 of 1"));
  EXPECT_THAT(Reported().events, Not(IsEmpty()));
}

TEST_F(AgentJoinTest, AStopEndsARankThatHasJoined) {
  Launch(Light({"--until", Go()}));
  ASSERT_TRUE(Shows("compute", 3));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(Reported().ranks[0].exit->victim);
}

}  // namespace
}  // namespace lockstep::worker::agent
