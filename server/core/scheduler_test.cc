// The queue, and what can never fit.
#include "server/core/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ns;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class ScheduleTest : public testing::Test {
 protected:
  // Seconds of the submission; cores of one task.
  void Add(const JobName& name, int64_t age, double cpus, int32_t priority = 0,
           Duration waited = {}) {
    auto job = std::make_unique<Job>();
    job->spec =
        ProgramSpec(name, {Role(TaskType::kChief, 1, {cpus, 0, 0, ""})});
    job->spec.priority = priority;
    job->create_time = FromUnixNanos(1'000'000'000 * (1000 - age));
    queue_.push_back({job.get(), waited, false});
    jobs_.push_back(std::move(job));
  }
  ScheduleResult Run() { return Schedule(queue_, hosts_, {}); }
  std::vector<JobName> Placed() {
    std::vector<JobName> names;
    for (const auto& placed : Run().placed) names.push_back(placed.job);
    return names;
  }

  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<QueuedJob> queue_;
  std::vector<HostCapacity> hosts_ = {Host("a", 4)};
};

TEST_F(ScheduleTest, OlderFirst) {
  Add("young", 1, 4);
  Add("old", 2, 4);
  EXPECT_THAT(Placed(), ElementsAre("old"));
  EXPECT_EQ(Run().waiting.at("young").reason, Reason::kNoCapacity);
}

TEST_F(ScheduleTest, PriorityBeforeAge) {
  Add("old", 2, 4);
  Add("urgent", 1, 4, 10);
  EXPECT_THAT(Placed(), ElementsAre("urgent"));
}

TEST_F(ScheduleTest, SmallerJobPassesOneThatDoesNotFit) {
  hosts_[0].allocated.cpus = 3;
  Add("large", 2, 4);
  Add("small", 1, 1);
  EXPECT_THAT(Placed(), ElementsAre("small"));
}

TEST_F(ScheduleTest, NobodyPassesOneThatHasWaitedLongEnough) {
  hosts_[0].allocated.cpus = 3;
  Add("large", 2, 4, 0, 5min);
  Add("small", 1, 1);
  EXPECT_THAT(Placed(), ElementsAre("small")) << "exactly at the limit";
  queue_[0].waited += 1ns;
  EXPECT_THAT(Placed(), IsEmpty());
  EXPECT_EQ(Run().waiting.at("small").reason, Reason::kBehindOthers);
  EXPECT_THAT(Run().waiting.at("small").message, HasSubstr("large"));
}

TEST_F(ScheduleTest, MoreImportantOnesPassItAllTheSame) {
  hosts_[0].allocated.cpus = 3;
  Add("large", 2, 4, 0, 10min);
  Add("small", 1, 1, 5);
  EXPECT_THAT(Placed(), ElementsAre("small"));
}

TEST_F(ScheduleTest, OneThatWaitsForANodeToComeBackStopsNobody) {
  hosts_.push_back(Host("big", 64));
  hosts_.back().ready = false;
  Add("large", 2, 32, 0, 10min);
  Add("small", 1, 1);
  EXPECT_THAT(Placed(), ElementsAre("small"));
}

TEST_F(ScheduleTest, AJobGoesToItsPoolOnly) {
  hosts_ = {Host("a", 8), Host("b", 4), Host("c", 4)};
  hosts_[0].pool = "default";
  hosts_[1].pool = hosts_[2].pool = "a100";
  Add("x", 4, 4);
  Add("y", 3, 4);
  Add("z", 2, 4);
  Add("any", 1, 4);
  for (size_t i = 0; i < 3; ++i) jobs_[i]->spec.pool = "a100";
  const ScheduleResult result = Run();
  ASSERT_THAT(result.placed, SizeIs(3));
  EXPECT_EQ(result.placed[0].placement[0].node, "b");
  EXPECT_EQ(result.placed[1].placement[0].node, "c");
  EXPECT_EQ(result.placed[2].job, "any");
  EXPECT_EQ(result.placed[2].placement[0].node, "a");
  EXPECT_EQ(result.waiting.at("z").message,
            "a chief task needs 4 cpus on one node of pool a100; the most free "
            "on one is 0 cpus (b; x holds 4 cpus)");
}

TEST_F(ScheduleTest, WhatAnyPoolTakesIsNoLongerFreeInAPool) {
  hosts_[0].pool = "a100";
  Add("any", 2, 4);
  Add("pooled", 1, 4);
  jobs_[1]->spec.pool = "a100";
  EXPECT_THAT(Placed(), ElementsAre("any"));
}

TEST_F(ScheduleTest, WhoWaitsForOnePoolHoldsUpNobodyElsewhere) {
  hosts_ = {Host("a", 4), Host("b", 4)};
  hosts_[0].pool = "default";
  hosts_[1].pool = "a100";
  hosts_[1].allocated.cpus = 3;
  Add("large", 5, 4, 0, 10min);
  Add("elsewhere", 4, 1);
  Add("behind", 3, 1);
  Add("any", 2, 1);
  jobs_[0]->spec.pool = jobs_[2]->spec.pool = "a100";
  jobs_[1]->spec.pool = "default";
  EXPECT_THAT(Placed(), ElementsAre("elsewhere"));
  for (const char* name : {"behind", "any"}) {
    EXPECT_EQ(Run().waiting.at(name).reason, Reason::kBehindOthers) << name;
  }
}

TEST_F(ScheduleTest, APoolWithoutReadyNodesIsNamed) {
  hosts_ = {Host("a", 4), Host("b", 4), Host("c", 4)};
  hosts_[0].pool = "default";
  hosts_[1].pool = hosts_[2].pool = "a100";
  hosts_[1].ready = hosts_[2].ready = false;
  Add("x", 1, 1);
  jobs_[0]->spec.pool = "a100";
  const auto why = [this] { return Run().waiting.at("x"); };
  EXPECT_EQ(why().reason, Reason::kNoNodes);
  EXPECT_EQ(why().message, "no node of pool a100 is ready now");
  hosts_[2].drained = true;
  EXPECT_EQ(why().message,
            "no node of pool a100 takes work now; 1 of 2 nodes is drained");
  jobs_[0]->spec.pool = "a10";
  EXPECT_EQ(why().message,
            "no node of pool a10 is registered; the pools here are a100, "
            "default: did you mean a100?");
  hosts_.clear();
  EXPECT_EQ(why().message, "no worker daemon is registered");
}

TEST_F(ScheduleTest, TwoInOneRoundShareWhatIsThere) {
  Add("x", 3, 2);
  Add("y", 2, 2);
  Add("z", 1, 2);
  EXPECT_THAT(Placed(), ElementsAre("x", "y"));
}

TEST_F(ScheduleTest, ReasonsOfThoseThatWait) {
  Add("x", 3, 8);
  EXPECT_THAT(Run().waiting.at("x").message,
              HasSubstr("a chief task needs 8 cpus on one node; the most free "
                        "on one is 4 cpus (a)"));
  queue_[0].backing_off = true;
  EXPECT_EQ(Run().waiting.at("x").reason, Reason::kBackoff);
  queue_[0].backing_off = false;
  jobs_[0]->holds.push_back({"b", 1, {}, {}, {}});
  EXPECT_EQ(Run().waiting.at("x").reason, Reason::kReleasing);
  hosts_[0].ready = false;
  EXPECT_EQ(Run().waiting.at("x").reason, Reason::kNoNodes);
  EXPECT_THAT(Run().waiting.at("x").message, HasSubstr("ready"));
  hosts_.clear();
  EXPECT_THAT(Run().waiting.at("x").message, HasSubstr("registered"));
}

// Jobs that request the same share an answer: not over a placement, nor with
// others.
TEST_F(ScheduleTest, ASharedAnswerIsOfTheSameRequestAndTheSameRoom) {
  Add("x", 9, 8);
  Add("same", 8, 8);
  Add("other", 7, 6);
  Add("small", 6, 1);
  Add("later", 5, 6);
  const ScheduleResult result = Run();
  EXPECT_THAT(result.placed, SizeIs(1));
  EXPECT_THAT(result.waiting.at("x").message,
              HasSubstr("needs 8 cpus on one node; the most free on one is 4"));
  EXPECT_EQ(result.waiting.at("same"), result.waiting.at("x"));
  EXPECT_THAT(result.waiting.at("other").message,
              HasSubstr("needs 6 cpus on one node; the most free on one is 4"));
  EXPECT_THAT(result.waiting.at("later").message,
              HasSubstr("needs 6 cpus on one node; the most free on one is 3"));
  EXPECT_THAT(result.waiting.at("later").message, HasSubstr("small holds 1"));
}

TEST_F(ScheduleTest, TheSameRequestInAnotherPoolHasItsOwnAnswer) {
  hosts_ = {Host("a", 4), Host("b", 2)};
  hosts_[0].pool = "big";
  hosts_[1].pool = "little";
  Add("x", 2, 4);
  Add("y", 1, 4);
  jobs_[0]->spec.pool = "little";
  jobs_[1]->spec.pool = "big";
  EXPECT_THAT(Placed(), ElementsAre("y"));
}

TEST_F(ScheduleTest, TheNearestNodeIsNamed) {
  hosts_ = {Host("gpu-1", 64, 64, {"V100", "V100"}),
            Host("gpu-3", 64, 64, std::vector<std::string>(8, "V100")),
            Host("gpu-9", 64, 64, std::vector<std::string>(8, "V100"))};
  hosts_[1].allocated_gpus = {0, 1, 2, 3};
  hosts_[2].ready = false;
  Add("x", 1, 1);
  jobs_[0]->spec.roles.Edit()[0].resources.gpus = 8;
  EXPECT_EQ(Run().waiting.at("x").message,
            "a chief task needs 8 GPUs on one node; the most free on one is 4 "
            "GPUs (gpu-3); not ready: gpu-9");
  jobs_[0]->spec.roles.Edit()[0].resources = {65, 0, 8, "V100"};
  EXPECT_THAT(Run().waiting.at("x").message,
              HasSubstr("needs 65 cpus, 8 V100 on one node; the most free on "
                        "one is 64 cpus, 4 V100 (gpu-3)"));
}

TEST_F(ScheduleTest, AGangOfWhichSomeFitsSaysHowMany) {
  Add("x", 1, 3);
  jobs_[0]->spec.roles.push_back(Role(TaskType::kWorker, 2, {2, 0, 0, ""}));
  EXPECT_EQ(Run().waiting.at("x").message,
            "needs 7 cpus in 3 tasks; 1 of them fits now");
}

TEST_F(ScheduleTest, WithoutAnEngineAContainerWaits) {
  Add("x", 1, 1);
  jobs_[0]->spec.roles.Edit()[0].container = Container{"image", {}};
  EXPECT_EQ(Run().waiting.at("x").message,
            "a chief task runs in a container, and no ready node has podman or "
            "docker");
}

class SamePlaceTest : public ScheduleTest {
 protected:
  SamePlaceTest() {
    hosts_ = {Host("a", 64, 64, {"T4", "T4", "T4"}),
              Host("b", 8, 64, {"T4", "T4", "T4"})};
    Add("x", 1, 1);
    Job& job = *jobs_[0];
    job.spec.roles.Edit()[0].resources.gpus = 2;
    TaskStatus task;
    task.node = "b";
    task.gpus = {0, 2};
    job.tasks = {task};
    job.attempts.resize(1);
    job.attempts[0].end_cause.reason = Reason::kRankExit;
  }
  TaskPlacement Place() {
    const ScheduleResult result = Run();
    EXPECT_THAT(result.placed, SizeIs(1));
    return result.placed.empty() ? TaskPlacement()
                                 : result.placed[0].placement[0];
  }
};

TEST_F(SamePlaceTest, AGangGoesWhereItWas) {
  EXPECT_EQ(Place().node, "b");
  EXPECT_THAT(Place().gpus, testing::UnorderedElementsAre(0, 2));
}

TEST_F(SamePlaceTest, OrElsewhereWhenThatIsTaken) {
  hosts_[1].allocated_gpus = {0, 1};
  EXPECT_EQ(Place().node, "a");
  hosts_[1].allocated_gpus = {0};
  EXPECT_THAT(Place().gpus, testing::UnorderedElementsAre(1, 2))
      << "others there are as good";
  hosts_[1].ready = false;
  EXPECT_EQ(Place().node, "a");
}

TEST_F(SamePlaceTest, NotWhereThePlaceWasTheFault) {
  jobs_[0]->attempts[0].end_cause.reason = Reason::kNoCapacity;
  EXPECT_EQ(Place().node, "a");
}

TEST_F(ScheduleTest, OneBackingOffStopsNobody) {
  Add("x", 3, 4, 0, 10min);
  queue_[0].backing_off = true;
  Add("y", 2, 4);
  EXPECT_THAT(Placed(), ElementsAre("y"));
}

TEST_F(ScheduleTest, SameInputInAnyOrderGivesTheSame) {
  hosts_ = {Host("a", 4), Host("b", 4), Host("c", 8, 64, {"T4", "V100"}),
            Host("d", 8, 64, {"T4"})};
  for (int i = 0; i < 12; ++i) {
    Add(fmt::format("j{:02}", i), i / 3, 1 + i % 3, i % 2);
  }
  jobs_[5]->spec.roles.Edit()[0].resources.gpus = 1;
  const auto describe = [this] {
    std::string text;
    for (const auto& placed : Run().placed) {
      text += placed.job + ":";
      for (const auto& place : placed.placement) text += place.node + " ";
    }
    return text;
  };
  const std::string first = describe();
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    std::shuffle(queue_.begin(), queue_.end(), random);
    std::shuffle(hosts_.begin(), hosts_.end(), random);
    ASSERT_EQ(describe(), first);
  }
}

// ---- Never ----

TEST(NeverFitsTest, NothingIsSaidWithoutNodes) {
  EXPECT_TRUE(CheckCanEverFit(Gang(100, {100, 0, 0, ""}), {}).ok());
}

TEST(NeverFitsTest, FullOrAbsentHostsAreNoReason) {
  std::vector<HostCapacity> hosts = {Host("a", 4)};
  hosts[0].allocated.cpus = 4;
  hosts[0].ready = false;
  EXPECT_TRUE(CheckCanEverFit(Gang(4, {1, 0, 0, ""}), hosts).ok());
}

TEST(NeverFitsTest, TaskTooLargeNamesTheNearestThatWouldFit) {
  const Status status =
      CheckCanEverFit(Gang(2, {8, 100 * kGiB, 0, ""}),
                      {Host("a", 64, 10), Host("b", 6, 64), Host("c", 2, 100)});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "NEVER_FITS");
  EXPECT_THAT(Message(status), HasSubstr("a chief task needs"));
  EXPECT_THAT(Message(status), HasSubstr("6 cpus, 64 GiB"));
  EXPECT_THAT(Message(status), HasSubstr("(node b)"));
}

TEST(NeverFitsTest, GpuTypeThatNobodyHas) {
  const Status status = CheckCanEverFit(Gang(1, {1, 0, 2, "A100"}),
                                        {Host("a", 64, 64, {"T4", "T4"})});
  EXPECT_EQ(ReasonOf(status), "NEVER_FITS");
  EXPECT_THAT(Message(status), HasSubstr("A100"));
}

TEST(NeverFitsTest, EveryReasonIsNamedAtOnce) {
  JobSpec spec = Gang(2, {1, 0, 2, "V100"});
  for (RoleSpec& role : spec.roles.Edit())
    role.container = Container{"image", {}};
  spec.roles.Edit()[1].resources = {100, 0, 0, ""};
  EXPECT_THAT(
      WhyNeverFits(spec, {Host("a", 64)}),
      ElementsAre(HasSubstr("a chief task runs in a container, and no node has "
                            "podman or docker"),
                  HasSubstr("a chief task needs 1 cpu, 2 V100, more than any "
                            "node has"),
                  HasSubstr("a worker task runs in a container"),
                  HasSubstr("a worker task needs 100 cpus")));
  // What is true of the chief is not told again of workers like it.
  EXPECT_THAT(WhyNeverFits(Gang(2, {100, 0, 0, ""}), {Host("a", 64)}),
              testing::SizeIs(1));
}

TEST(ShortageTest, WhoHoldsItIsNamed) {
  std::vector<HostCapacity> hosts = {Host("a", 8)};
  hosts[0].allocated.cpus = 7;
  hosts[0].holders = {{"big", {6, 0, 0, ""}}, {"small", {1, 0, 0, ""}}};
  const Job job = NewJob(Gang(1, {4, 0, 0, ""}), "u", "o", Time());
  const ScheduleResult result = Schedule({{&job, {}, false}}, hosts, {});
  EXPECT_EQ(result.waiting.at("j").message,
            "a chief task needs 4 cpus on one node; the most free on one is 1 "
            "cpu (a; big holds 6 cpus, small holds 1 cpu)");
}

// Each task fits somewhere, but not all at once.
TEST(ShortageTest, WhoHoldsWhatTheRestOfAGangNeedsIsNamed) {
  std::vector<HostCapacity> hosts = {Host("b", 4), Host("a", 4), Host("c", 4)};
  hosts[0].allocated = {2, 8 * kGiB, 0, ""};
  hosts[0].holders = {{"other", {2, 8 * kGiB, 0, ""}}};
  hosts[1].allocated.cpus = 3;
  hosts[1].holders = {{"big", {2, 0, 0, ""}}, {"small", {1, 0, 0, ""}}};
  Job job = NewJob(Gang(4, {2, kGiB, 0, ""}), "u", "o", Time());
  const auto message = [&] {
    return Schedule({{&job, {}, false}}, hosts, {}).waiting.at("j").message;
  };
  EXPECT_EQ(message(),
            "needs 8 cpus, 4 GiB in 4 tasks; 3 of them fit now (a: big holds 2 "
            "cpus, small holds 1 cpu; b: other holds 2 cpus)");
  // c is full, by nothing that others hold.
  job.spec.roles.Edit()[0].resources.cpus = 1.5;
  job.spec.roles.Edit()[1].resources.cpus = 2;
  EXPECT_THAT(message(), HasSubstr("(a: big holds 2 cpus, small holds 1 cpu; "
                                   "b: other holds 2 cpus)"));
  for (const char* node : {"d", "e"}) {
    hosts.push_back(Host(node, 4));
    hosts.back().allocated.cpus = 4;
    hosts.back().holders = {{"huge", {4, 0, 0, ""}}};
  }
  EXPECT_THAT(message(), HasSubstr("d: huge holds 4 cpus; 1 more node)"));
}

// Nodes a and b have GPUs and no CPU, c has a CPU and no GPU: neither alone is
// what is missing.
TEST(ShortageTest, HostsThatAreShortOfDifferentThingsAreNamed) {
  std::vector<HostCapacity> hosts = {Host("a", 1, 8, {"T4", "T4"}),
                                     Host("b", 1, 8, {"T4", "T4"}),
                                     Host("c", 1)};
  for (HostCapacity& host : hosts) {
    if (host.node == "c") continue;
    host.allocated.cpus = 1;
    host.holders = {{"on-" + host.node, {1, 0, 0, ""}}};
  }
  const Job job = NewJob(Gang(2, {1, 0, 1, ""}), "u", "o", Time());
  const ScheduleResult result = Schedule({{&job, {}, false}}, hosts, {});
  EXPECT_EQ(result.waiting.at("j").message,
            "a chief task needs 1 cpu, 1 GPU on one node; c has 0 GPUs free, a "
            "has 0 cpus free (on-a holds 1 cpu)");
}

TEST(NeverFitsTest, GangTooLargeSaysHowManyTasksWouldFit) {
  const Status status =
      CheckCanEverFit(Gang(5, {2, 0, 0, ""}), {Host("a", 4), Host("b", 5)});
  EXPECT_EQ(ReasonOf(status), "NEVER_FITS");
  EXPECT_THAT(Message(status), HasSubstr("its 5 tasks"));
  EXPECT_THAT(Message(status), HasSubstr("is 4 of them"));
}

TEST(NeverFitsTest, SumsBeyond64BitsAreNoSurprise) {
  JobSpec spec = Gang(1, {});
  spec.roles.Edit()[0].count = 65536;
  spec.roles.Edit()[0].resources = {65536, int64_t{1} << 60, 4096, ""};
  EXPECT_EQ(ReasonOf(CheckCanEverFit(spec, {Host("a", 4)})), "NEVER_FITS");
  HostCapacity huge = Host("a", 65536, 1);
  huge.capacity.memory_bytes = int64_t{1} << 60;
  spec.roles.Edit()[0].resources.gpus = 0;
  EXPECT_EQ(ReasonOf(CheckCanEverFit(spec, {huge})), "NEVER_FITS");
}

TEST(NeverFitsTest, WhatFitsInAnotherPoolOnly) {
  std::vector<HostCapacity> hosts = {Host("a", 64), Host("b", 2)};
  hosts[0].pool = "default";
  hosts[1].pool = "small";
  JobSpec spec = Gang(1, {4, 0, 0, ""});
  spec.pool = "default";
  EXPECT_TRUE(CheckCanEverFit(spec, hosts).ok());
  spec.pool = "small";
  EXPECT_THAT(Message(CheckCanEverFit(spec, hosts)),
              HasSubstr("4 cpus, more than any node of pool small has; the "
                        "nearest that would fit is 2 cpus (node b)"));
  spec.roles.Edit()[0].resources.cpus = 2;
  spec.roles.Edit()[0].count = 3;
  EXPECT_THAT(Message(CheckCanEverFit(spec, hosts)),
              HasSubstr("do not fit on 1 node of pool small together"));
  spec.pool = "smal";
  const Status status = CheckCanEverFit(spec, hosts);
  EXPECT_EQ(ReasonOf(status), "NEVER_FITS");
  EXPECT_THAT(Message(status),
              HasSubstr("no node of pool smal is registered; the pools here "
                        "are default, small: did you mean small?"));
  EXPECT_TRUE(CheckCanEverFit(spec, {}).ok()) << "nothing is known yet";
}

TEST(NeverFitsTest, AContainerWithoutAnEngine) {
  std::vector<HostCapacity> hosts = {Host("a", 64), Host("b", 2)};
  JobSpec spec = Gang(1, {4, 0, 0, ""});
  spec.roles.Edit()[0].container = Container{"image", {}};
  EXPECT_THAT(Message(CheckCanEverFit(spec, hosts)),
              HasSubstr("no node has podman or docker"));
  hosts[1].container_engine = "podman 4.3.1";
  EXPECT_THAT(Message(CheckCanEverFit(spec, hosts)),
              HasSubstr("4 cpus, more than any node with a container engine "
                        "has; the nearest that would fit is 2 cpus (node b)"));
  hosts[0].container_engine = "podman 4.3.1";
  EXPECT_TRUE(CheckCanEverFit(spec, hosts).ok());
}

}  // namespace
}  // namespace lockstep::server
