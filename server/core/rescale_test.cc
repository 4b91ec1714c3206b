// Gangs that run with fewer tasks than their job asks for.
#include "server/core/rescale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server/core/assignments.h"
#include "server/core/expected_start.h"
#include "server/core/moving.h"
#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Workers of 2 cores.
JobSpec RescaleSpec(int32_t tasks, int32_t least, const JobName& name = "r") {
  JobSpec spec =
      ProgramSpec(name, {Role(TaskType::kWorker, tasks, {2, 0, 0, ""})});
  spec.elastic_min_tasks = least;
  spec.rescale = true;
  return spec;
}

std::vector<HostCapacity> Hosts(int count) {
  std::vector<HostCapacity> hosts;
  for (int i = 0; i < count; ++i) {
    hosts.push_back(Host(std::string(1, static_cast<char>('a' + i)), 2));
  }
  return hosts;
}

ScheduleResult ScheduleOne(const Job& job, Duration waited,
                           const std::vector<HostCapacity>& hosts) {
  return Schedule({{&job, waited, false}}, hosts, {});
}

std::vector<NodeName> NodesOf(const ScheduleResult& result) {
  std::vector<NodeName> nodes;
  for (const auto& placed : result.placed) {
    for (const TaskPlacement& place : placed.placement) {
      nodes.push_back(place.node);
    }
  }
  return nodes;
}

// ---- The scheduler ----------------------------------------------------------

TEST(RescaleScheduleTest, ANewJobStartsAtOnceWithAsManyTasksAsFit) {
  Scene s(RescaleSpec(4, 2));
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 0s, Hosts(4))), SizeIs(4));
  const ScheduleResult fewer = ScheduleOne(s.job, 0s, Hosts(3));
  EXPECT_THAT(NodesOf(fewer), ElementsAre("a", "b", "c"));
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(fewer.placed[0].placement[static_cast<size_t>(i)].index, i);
  }
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 0s, Hosts(2))), SizeIs(2));
  const ScheduleResult none = ScheduleOne(s.job, 0s, Hosts(1));
  EXPECT_THAT(none.placed, IsEmpty());
  EXPECT_EQ(none.waiting.at("r").reason, Reason::kNoCapacity);
  EXPECT_THAT(none.waiting.at("r").message,
              HasSubstr("with the fewest tasks: needs 4 cpus in 2 tasks; 1 of "
                        "them fits now"));
}

TEST(RescaleScheduleTest, OnlyWorkersAreLeftOut) {
  JobSpec spec = ProgramSpec("r", {Role(TaskType::kChief, 1, {2, 0, 0, ""}),
                                   Role(TaskType::kWorker, 3, {2, 0, 0, ""}),
                                   Role(TaskType::kPs, 1, {2, 0, 0, ""})});
  spec.elastic_min_tasks = 1;
  spec.rescale = true;
  Scene s(spec);
  const auto types = [&](int hosts) {
    std::vector<TaskType> types;
    for (const auto& placed : ScheduleOne(s.job, 0s, Hosts(hosts)).placed) {
      for (const TaskPlacement& place : placed.placement) {
        types.push_back(place.type);
      }
    }
    return types;
  };
  EXPECT_THAT(types(4), ElementsAre(TaskType::kChief, TaskType::kWorker,
                                    TaskType::kWorker, TaskType::kPs));
  EXPECT_THAT(types(2), ElementsAre(TaskType::kChief, TaskType::kPs));
  EXPECT_THAT(types(1), IsEmpty());
}

// One that lost a node a moment ago waits for it, and then does without.
TEST(RescaleScheduleTest, ARestartingJobWaitsAMomentForItsSize) {
  Scene s(RescaleSpec(4, 2));
  s.Run({"a", "b", "c", "d"});
  s.job.holds.clear();
  s.job.state = JobState::kPlacing;
  const ScheduleResult waits = ScheduleOne(s.job, 29s, Hosts(3));
  EXPECT_THAT(waits.placed, IsEmpty());
  EXPECT_EQ(waits.waiting.at("r").reason, Reason::kFewerTasks);
  EXPECT_EQ(waits.waiting.at("r").message,
            "waits 30.0 s for all 4 tasks, then starts with 3");
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 30s, Hosts(3))), SizeIs(3));
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 1s, Hosts(4))), SizeIs(4));
  EXPECT_EQ(ScheduleOne(s.job, 1s, Hosts(1)).waiting.at("r").reason,
            Reason::kNoCapacity)
      << "nothing that the wait would bring";
}

TEST(RescaleScheduleTest, ThePlacesOfAJobThatWaitsAMomentAreKept) {
  Scene s(RescaleSpec(4, 2));
  s.Run({"a", "b", "c", "d"});
  Job job = s.job;
  job.state = JobState::kPlacing;
  job.holds.clear();
  Scene other(RescaleSpec(1, 1, "s"));
  other.job.spec.priority = -1;
  const auto placed = [&](int hosts) {
    return Schedule({{&job, 1s, false}, {&other.job, 0s, false}}, Hosts(hosts),
                    {})
        .placed.size();
  };
  EXPECT_EQ(placed(3), 0u);
  EXPECT_EQ(placed(5), 2u);
}

TEST(RescaleScheduleTest, ItWaitsForNoMoreThanItHad) {
  Scene s(RescaleSpec(4, 2));
  s.Run({"a", "b", "c"});
  s.job.holds.clear();
  s.job.state = JobState::kPlacing;
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 1s, Hosts(3))), SizeIs(3));
  EXPECT_EQ(ScheduleOne(s.job, 1s, Hosts(2)).waiting.at("r").message,
            "waits 30.0 s for 3 tasks, then starts with 2");
}

TEST(RescaleScheduleTest, AJobOfOneSizeWaits) {
  JobSpec spec = RescaleSpec(4, 2);
  spec.rescale = false;
  Scene s(spec);
  const ScheduleResult result = ScheduleOne(s.job, 0s, Hosts(3));
  EXPECT_THAT(result.placed, IsEmpty());
  EXPECT_THAT(result.waiting.at("r").message, HasSubstr("in 4 tasks"));
  EXPECT_THAT(WhyNeverFits(spec, Hosts(3)), SizeIs(1));
}

TEST(RescaleScheduleTest, ItKeepsItsPlacesAtTheSameSizeOnly) {
  Scene s(RescaleSpec(3, 1));
  s.Run({"c", "b"});
  s.Exited(0, Signal(SIGKILL));
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kPlacing) << "there may be room for more";
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 0s, Hosts(3))),
              ElementsAre("a", "b", "c"));
  std::vector<HostCapacity> hosts = Hosts(4);
  hosts[0].ready = hosts[3].ready = false;
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 0s, hosts)), ElementsAre("c", "b"));
}

TEST(RescaleScheduleTest, WhatCanNeverFitIsTheSmallestGang) {
  EXPECT_THAT(WhyNeverFits(RescaleSpec(4, 2), Hosts(2)), IsEmpty());
  EXPECT_THAT(WhyNeverFits(RescaleSpec(4, 3), Hosts(2)),
              ElementsAre(HasSubstr("its fewest 3 tasks (6 cpus in all) do not "
                                    "fit on 2 nodes together")));
}

TEST(RescaleScheduleTest, AQueueOfEqualJobsGetsOneAnswer) {
  Scene first(RescaleSpec(4, 2, "r1"));
  Scene second(RescaleSpec(3, 2, "r2"));
  Scene smaller(RescaleSpec(4, 1, "r3"));
  const ScheduleResult result = Schedule({{&first.job, 0s, false},
                                          {&second.job, 0s, false},
                                          {&smaller.job, 0s, false}},
                                         Hosts(1), {});
  EXPECT_EQ(result.waiting.at("r1"), result.waiting.at("r2"));
  ASSERT_THAT(result.placed, SizeIs(1));
  EXPECT_EQ(result.placed[0].job, "r3");
}

TEST(RescaleScheduleTest, TheForecastUsesTheSmallestSizeThatFits) {
  Scene s(RescaleSpec(3, 2));
  std::vector<HostCapacity> hosts = Hosts(3);
  for (HostCapacity& host : hosts) host.allocated.cpus = 2;
  const auto end = [&](const NodeName& node, Duration in) {
    return ExpectedEnd{s.now.wall + in, {Hold{node, 1, {2, 0, 0, ""}, {}, {}}}};
  };
  const auto starts = ExpectStarts(
      {{&s.job, 0s, false}}, hosts,
      {end("a", 60s), end("b", 120s), end("c", 180s)}, {}, s.now.wall);
  EXPECT_EQ(starts.at("r"), s.now.wall + 120s);
}

TEST(RescaleScheduleTest, AUserMayWantFewer) {
  Scene s(RescaleSpec(4, 1));
  s.job = *ResizeTo(s.job, 2, "user/ann", s.now);
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 0s, Hosts(4))), SizeIs(2));
  EXPECT_THAT(NodesOf(ScheduleOne(s.job, 0s, Hosts(1))), SizeIs(1));
}

// ---- Room for more ----------------------------------------------------------

class RoomTest : public testing::Test {
 protected:
  RoomTest() {
    s_.Run({"a", "b"});
    for (HostCapacity& host : hosts_) {
      if (host.node == "a" || host.node == "b") host.allocated.cpus = 2;
    }
  }
  Scene s_{RescaleSpec(4, 1)};
  std::vector<HostCapacity> hosts_ = Hosts(3);
};

TEST_F(RoomTest, ItsOwnPlacesCount) {
  EXPECT_TRUE(WantsToGrow(s_.job));
  std::vector<HostCapacity> hosts = hosts_;
  EXPECT_EQ(RoomFor(s_.job, {}, &hosts), 3);
  EXPECT_EQ(RoomFor(s_.job, {}, &hosts), 0) << "the room is given away once";
  hosts = hosts_;
  hosts[2].ready = false;
  EXPECT_EQ(RoomFor(s_.job, {}, &hosts), 0);
}

TEST_F(RoomTest, QueuedJobsGoFirst) {
  const auto room = [&](const JobSpec& spec) {
    Scene queued(spec);
    std::vector<HostCapacity> hosts = hosts_;
    return RoomFor(s_.job, {&queued.job}, &hosts);
  };
  JobSpec spec = RescaleSpec(3, 3, "q");
  EXPECT_EQ(room(spec), 0) << "it would need all nodes";
  s_.job.spec.priority = 1;
  EXPECT_EQ(room(spec), 3) << "one of lower priority waits";
  s_.job.spec.priority = 0;
  spec.pool = "other";
  s_.job.spec.pool = "";
  EXPECT_EQ(room(spec), 3) << "it cannot go there";
  EXPECT_EQ(room(RescaleSpec(5, 5, "q")), 3) << "it can never fit";
}

// ---- The lifecycle ----------------------------------------------------------

class ResizeTest : public testing::Test {
 protected:
  // Three nodes of four.
  void Run(bool joined) {
    s_.job.spec.restart_budget = 0;
    s_.Run({"a", "b", "c"});
    joined_ = joined;
    for (int rank = 0; joined && rank < 3; ++rank) {
      s_.Rank(rank).progress.phase = "compute";
    }
  }
  void SaveAndStop() {
    s_.Gang("a").directive_done = 1;
    s_.Rank(0).progress.committed_step = 41;
    for (int rank = 0; rank < SizeOf(s_.job); ++rank) s_.Exited(rank, Code(0));
    s_.Settle();
    ASSERT_TRUE(s_.job.failing);
    s_.AllStopped();
    s_.Settle();
  }
  // The coordinator looks.
  void Look(int32_t room, Duration since) {
    s_.view.room = {room, since};
    s_.Settle();
  }

  Scene s_{RescaleSpec(4, 2)};
  bool joined_ = false;
};

TEST_F(ResizeTest, TheGangHasTheTasksThatWerePlaced) {
  Run(false);
  ASSERT_TRUE(s_.job.cluster);
  EXPECT_EQ(s_.job.cluster->world_size, 3);
  EXPECT_EQ(s_.job.cluster->full_size, 4);
  const auto environment = RankEnvironment(*s_.job.cluster, 2);
  EXPECT_EQ(environment.at("WORLD_SIZE"), "3");
  EXPECT_EQ(environment.at("LOCKSTEP_FULL_SIZE"), "4");
  EXPECT_THAT(s_.job.holds, SizeIs(3));
}

TEST_F(ResizeTest, ItGrowsWhenTheRoomStays) {
  Run(true);
  s_.Advance(kLongEnoughToGrow - 1s);
  Look(4, kRoomStays);
  EXPECT_FALSE(s_.job.resize) << "a restart costs";
  s_.Advance(1s);
  Look(4, kRoomStays - 1s);
  EXPECT_FALSE(s_.job.resize) << "the room may go again";
  Look(4, kRoomStays);
  ASSERT_TRUE(s_.job.resize);
  EXPECT_FALSE(s_.job.failing) << "it saves first";
  EXPECT_THAT(s_.job.directives,
              ElementsAre(Directive{1, DirectiveKind::kStop}));
  EXPECT_EQ(s_.job.events.back().reason, Reason::kResized);
  EXPECT_EQ(s_.job.events.back().message,
            "room for 4 tasks: the job saves and restarts with 4 instead of 3");
  s_.view.room.reset();
  SaveAndStop();
  EXPECT_EQ(s_.job.state, JobState::kPlacing);
  EXPECT_EQ(s_.job.cause.reason, Reason::kResized);
  EXPECT_EQ(s_.job.cause.message, "looking for room for 4 tasks");
  EXPECT_EQ(s_.job.failures_without_progress, 0) << "costs no try";
  EXPECT_EQ(s_.job.attempts.back().end_cause.reason, Reason::kResized);
  EXPECT_FALSE(s_.job.not_before && *s_.job.not_before > s_.now.wall);
  s_.Run({"a", "b", "c", "d"});
  EXPECT_FALSE(s_.job.resize);
  EXPECT_EQ(s_.job.cluster->world_size, 4);
  EXPECT_FALSE(WantsToGrow(s_.job));
}

TEST_F(ResizeTest, NoFlapping) {
  Run(true);
  s_.Advance(kLongEnoughToGrow);
  Look(4, kRoomStays);
  SaveAndStop();
  // The room is gone again.
  s_.Run({"a", "b", "c"});
  Look(4, kRoomStays);
  EXPECT_FALSE(s_.job.resize);
  s_.Advance(kLongEnoughToGrow - 1s);
  Look(4, kRoomStays);
  EXPECT_FALSE(s_.job.resize) << "the next try is ten minutes later";
}

TEST_F(ResizeTest, AProgramThatHasNotJoinedIsStopped) {
  Run(false);
  s_.Advance(kLongEnoughToGrow);
  Look(4, kRoomStays);
  ASSERT_TRUE(s_.job.failing);
  EXPECT_EQ(s_.job.failing->message,
            "room for 4 tasks: the job restarts with 4 instead of 3");
  const auto goals =
      DesiredAssignments(s_.job, s_.view, "a", StopGraces(), s_.now);
  EXPECT_EQ(goals.back().goal, Goal::kStop);
  EXPECT_EQ(goals.back().grace, StopGraces().cancel);
  s_.AllStopped();
  s_.Settle();
  EXPECT_EQ(s_.job.state, JobState::kPlacing);
  EXPECT_EQ(s_.job.failures_without_progress, 0);
}

TEST_F(ResizeTest, RanksThatDoNotStopAreStopped) {
  Run(true);
  s_.Advance(kLongEnoughToGrow);
  Look(4, kRoomStays);
  s_.Advance(15s);
  s_.Settle();
  ASSERT_TRUE(s_.job.failing);
  EXPECT_THAT(s_.job.failing->message, HasSubstr("did not agree on a step"));
}

TEST_F(ResizeTest, ASaveHasALimit) {
  Run(true);
  s_.Advance(kLongEnoughToGrow);
  Look(4, kRoomStays);
  s_.Gang("a").directive_done = 1;
  s_.Advance(kLongestSave - 1s);
  s_.Settle();
  EXPECT_FALSE(s_.job.failing);
  s_.Advance(1s);
  s_.Settle();
  ASSERT_TRUE(s_.job.failing);
  EXPECT_THAT(s_.job.failing->message, HasSubstr("did not stop in time"));
}

TEST_F(ResizeTest, AUserSetsFewerAtOnce) {
  Run(true);
  s_.job = *ResizeTo(s_.job, 2, "user/ann", s_.now);
  EXPECT_EQ(s_.job.wanted_tasks, 2);
  s_.Settle();
  EXPECT_EQ(
      s_.job.events.back().message,
      "user/ann wants 2 tasks: the job saves and restarts with 2 instead of 3");
  SaveAndStop();
  s_.Run({"a", "b"});
  EXPECT_EQ(s_.job.cluster->world_size, 2);
  EXPECT_EQ(s_.job.cluster->full_size, 4);
  s_.Advance(kLongEnoughToGrow);
  Look(4, kRoomStays);
  EXPECT_FALSE(s_.job.resize) << "it has what the user wants";
}

TEST_F(ResizeTest, AUserSetsMoreAsSoonAsThereIsRoom) {
  Run(true);
  s_.job = *ResizeTo(s_.job, 4, "user/ann", s_.now);
  EXPECT_EQ(s_.job.wanted_tasks, 0) << "all of the spec";
  s_.Settle();
  EXPECT_THAT(s_.job.directives, IsEmpty()) << "no room yet";
  Look(4, 0s);
  EXPECT_THAT(s_.job.directives, SizeIs(1));
  EXPECT_THAT(
      s_.job.events.back().message,
      HasSubstr("user/ann wants 4 tasks, and there is room for 4 tasks: "
                "the job saves and restarts with 4 instead of 3"));
}

TEST_F(ResizeTest, WhatCannotBeIsRefused) {
  Run(true);
  const auto refused = [&](int32_t size) {
    return std::string(Message(ResizeTo(s_.job, size, "u", s_.now).status()));
  };
  EXPECT_EQ(refused(1),
            "tasks: job r may have 2 to 4 tasks of chief and workers, not 1");
  EXPECT_THAT(refused(5), HasSubstr("not 5"));
  s_.job.spec.rescale = false;
  s_.job.spec.elastic_min_tasks = 0;
  EXPECT_THAT(refused(3), HasSubstr("has a fixed size of 4 tasks: one that is "
                                    "submitted with --elastic MIN can"));
  s_.job.state = JobState::kSucceeded;
  EXPECT_EQ(refused(3), "job r has ended");
}

TEST_F(ResizeTest, ALostNodeLeadsToASmallerGang) {
  Run(false);
  s_.view.nodes.at("c").state = NodeState::kLost;
  s_.Settle();
  ASSERT_TRUE(s_.job.failing);
  s_.Stopped("a");
  s_.Stopped("b");
  s_.Settle();
  ASSERT_EQ(s_.job.state, JobState::kPlacing);
  std::vector<HostCapacity> hosts = Hosts(2);
  EXPECT_EQ(ScheduleOne(s_.job, 1s, hosts).waiting.at("r").reason,
            Reason::kFewerTasks);
  const ScheduleResult fewer = ScheduleOne(s_.job, kFullSizePatience, hosts);
  ASSERT_THAT(NodesOf(fewer), ElementsAre("a", "b"));
  s_.Run({"a", "b"});
  EXPECT_EQ(s_.job.cluster->world_size, 2);
}

// Ranks that end may be the end of the job.
TEST_F(ResizeTest, AJobThatEndsIsLeftAlone) {
  Run(true);
  s_.Advance(kLongEnoughToGrow);
  s_.Exited(2, Code(0));
  Look(4, kRoomStays);
  EXPECT_FALSE(s_.job.resize);
  EXPECT_FALSE(s_.job.failing);
}

}  // namespace
}  // namespace lockstep::server
