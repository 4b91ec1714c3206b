#include "server/core/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "server/core/testing.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ns;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kGiB = int64_t{1} << 30;

HostCapacity Host(const NodeName& node, double cpus, int64_t gib = 64,
                  const std::vector<std::string>& gpus = {}) {
  HostCapacity host;
  host.node = node;
  host.ready = true;
  host.capacity = {cpus, gib * kGiB, static_cast<int32_t>(gpus.size()), ""};
  for (size_t i = 0; i < gpus.size(); ++i) {
    host.gpus.push_back({static_cast<int32_t>(i), "", gpus[i], 0});
  }
  return host;
}

JobSpec Gang(int32_t tasks, Resources each) {
  JobSpec spec = NativeSpec("j", tasks);
  for (RoleSpec& role : spec.roles) role.resources = each;
  return spec;
}

std::vector<NodeName> NodesOf(const std::vector<TaskPlacement>& placement) {
  std::vector<NodeName> nodes;
  for (const TaskPlacement& place : placement) nodes.push_back(place.node);
  return nodes;
}

std::vector<NodeName> Placed(const JobSpec& spec,
                             const std::vector<HostCapacity>& hosts) {
  const auto placement = PlaceGang(spec, hosts);
  return placement ? NodesOf(*placement) : std::vector<NodeName>();
}

// ---- Placing one gang ----

TEST(PlaceGangTest, AllOrNothing) {
  const auto hosts = std::vector{Host("a", 2), Host("b", 2)};
  EXPECT_THAT(Placed(Gang(4, {1, 0, 0, ""}), hosts),
              ElementsAre("a", "a", "b", "b"));
  EXPECT_FALSE(PlaceGang(Gang(5, {1, 0, 0, ""}), hosts));
}

TEST(PlaceGangTest, FewHosts) {
  EXPECT_THAT(Placed(Gang(2, {1, 0, 0, ""}),
                     {Host("a", 2), Host("b", 8), Host("c", 4)}),
              ElementsAre("b", "b"));
}

TEST(PlaceGangTest, TiesGoByName) {
  EXPECT_THAT(Placed(Gang(1, {1, 0, 0, ""}), {Host("b", 4), Host("a", 4)}),
              ElementsAre("a"));
}

TEST(PlaceGangTest, HostsThatAreNotReadyTakeNothing) {
  std::vector<HostCapacity> hosts = {Host("a", 4), Host("b", 4)};
  hosts[0].ready = false;
  EXPECT_THAT(Placed(Gang(1, {1, 0, 0, ""}), hosts), ElementsAre("b"));
}

TEST(PlaceGangTest, MemoryCounts) {
  EXPECT_THAT(Placed(Gang(2, {1, 4 * kGiB, 0, ""}),
                     {Host("a", 64, 7), Host("b", 4, 4)}),
              ElementsAre("a", "b"));
}

TEST(PlaceGangTest, CoresAreComparedWithSlack) {
  std::vector<HostCapacity> hosts = {Host("a", 0.3)};
  EXPECT_TRUE(PlaceGang(Gang(3, {0.1, 0, 0, ""}), hosts));
  EXPECT_FALSE(PlaceGang(Gang(1, {0.31, 0, 0, ""}), hosts));
}

TEST(PlaceGangTest, TasksThatAskForNothingFitEvenOnAFullHost) {
  std::vector<HostCapacity> hosts = {Host("a", 2)};
  hosts[0].allocated.cpus = 2;
  EXPECT_TRUE(PlaceGang(Gang(3, {0, 0, 0, ""}), hosts));
}

TEST(PlaceGangTest, GpusAreGivenOnceAndByType) {
  const std::vector<HostCapacity> hosts = {
      Host("a", 16, 64, {"NVIDIA T4", "NVIDIA V100", "NVIDIA T4"})};
  const auto placement = PlaceGang(Gang(2, {1, 0, 1, "t4"}), hosts);
  ASSERT_TRUE(placement);
  EXPECT_THAT((*placement)[0].gpus, ElementsAre(0));
  EXPECT_THAT((*placement)[1].gpus, ElementsAre(2));
  EXPECT_FALSE(PlaceGang(Gang(3, {1, 0, 1, "T4"}), hosts));
  EXPECT_TRUE(PlaceGang(Gang(3, {1, 0, 1, ""}), hosts));
}

TEST(PlaceGangTest, GpusInUseAreNotFree) {
  std::vector<HostCapacity> hosts = {Host("a", 16, 64, {"T4", "T4"})};
  hosts[0].allocated_gpus = {0};
  const auto placement = PlaceGang(Gang(1, {1, 0, 1, ""}), hosts);
  ASSERT_TRUE(placement);
  EXPECT_THAT((*placement)[0].gpus, ElementsAre(1));
}

TEST(PlaceGangTest, GpusThatDoNotAnswerGetNothing) {
  std::vector<HostCapacity> hosts = {Host("a", 16, 64, {"T4", "T4"})};
  hosts[0].silent_gpus = {0};
  const auto placement = PlaceGang(Gang(1, {1, 0, 1, ""}), hosts);
  ASSERT_TRUE(placement);
  EXPECT_THAT((*placement)[0].gpus, ElementsAre(1));
  EXPECT_FALSE(PlaceGang(Gang(2, {1, 0, 1, ""}), hosts));
}

TEST(PlaceGangTest, ChoosyTasksGoBeforeThoseThatTakeAnyGpu) {
  JobSpec spec = Gang(5, {1, 0, 1, "T4"});
  spec.roles[0].resources.gpu_type = "";  // The chief.
  const std::vector<HostCapacity> hosts = {
      Host("a", 16, 64, {"T4", "T4", "T4", "T4"}), Host("b", 16, 64, {"V100"})};
  EXPECT_THAT(Placed(spec, hosts), ElementsAre("b", "a", "a", "a", "a"));
}

TEST(PlaceGangTest, GangsWithoutGpusLeaveGpuHostsAlone) {
  EXPECT_THAT(
      Placed(Gang(1, {1, 0, 0, ""}), {Host("a", 8, 64, {"T4"}), Host("b", 8)}),
      ElementsAre("b"));
}

// By GPUs or cores first, the large memory would come too late.
TEST(PlaceGangTest, WhatIsShortDecidesWhoGoesFirst) {
  JobSpec spec =
      ProgramSpec("j", {Role(TaskType::kChief, 1, {4, 1 * kGiB, 0, ""}),
                        Role(TaskType::kWorker, 1, {1, 8 * kGiB, 0, ""})});
  EXPECT_THAT(Placed(spec, {Host("a", 5, 8), Host("b", 4, 4)}),
              ElementsAre("b", "a"));
}

// ---- The queue ----

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

TEST_F(ScheduleTest, TwoInOneRoundShareWhatIsThere) {
  Add("x", 3, 2);
  Add("y", 2, 2);
  Add("z", 1, 2);
  EXPECT_THAT(Placed(), ElementsAre("x", "y"));
}

TEST_F(ScheduleTest, ReasonsOfThoseThatWait) {
  Add("x", 3, 8);
  EXPECT_THAT(Run().waiting.at("x").message,
              HasSubstr("needs 8 cpus in 1 task; free on ready nodes: 4 cpus"));
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
  jobs_[5]->spec.roles[0].resources.gpus = 1;
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

// Random gangs and hosts: what is placed fits, and nothing is given twice.
TEST(PlaceGangTest, NothingIsEverOverbooked) {
  std::mt19937 random(11);
  const auto upto = [&](int n) { return static_cast<int>(random() % n); };
  int placed = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<HostCapacity> hosts;
    for (int i = 0; i < 1 + upto(5); ++i) {
      std::vector<std::string> gpus;
      for (int g = upto(4); g > 0; --g) gpus.push_back(upto(2) ? "T4" : "V100");
      hosts.push_back(Host(std::string(1, 'a' + i), upto(9), upto(9), gpus));
      hosts.back().ready = upto(5) > 0;
      hosts.back().allocated.cpus = upto(3);
      if (!gpus.empty() && upto(3) == 0) hosts.back().allocated_gpus = {0};
    }
    JobSpec spec = Gang(1 + upto(6), {});
    for (RoleSpec& role : spec.roles) {
      role.resources = {static_cast<double>(upto(4)), upto(4) * kGiB, upto(3),
                        upto(2) ? "T4" : ""};
      if (role.resources.gpus == 0) role.resources.gpu_type = "";
    }
    const auto placement = PlaceGang(spec, hosts);
    if (!placement) continue;
    ++placed;
    for (const HostCapacity& host : hosts) {
      Resources used = host.allocated;
      std::vector<int32_t> gpus = host.allocated_gpus;
      bool any = false;
      for (const TaskPlacement& place : *placement) {
        if (place.node != host.node) continue;
        any = true;
        const Resources& need =
            spec.roles[place.type == TaskType::kChief ? 0 : 1].resources;
        used.cpus += need.cpus;
        used.memory_bytes += need.memory_bytes;
        ASSERT_EQ(place.gpus.size(), static_cast<size_t>(need.gpus));
        for (const int32_t gpu : place.gpus) {
          ASSERT_TRUE(GpuModelMatches(need.gpu_type, host.gpus[gpu].model));
          gpus.push_back(gpu);
        }
      }
      if (!any) continue;
      ASSERT_TRUE(host.ready);
      ASSERT_LE(used.memory_bytes, host.capacity.memory_bytes);
      std::sort(gpus.begin(), gpus.end());
      ASSERT_EQ(std::adjacent_find(gpus.begin(), gpus.end()), gpus.end());
    }
  }
  EXPECT_GT(placed, 200);
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

TEST(NeverFitsTest, GangTooLargeSaysHowManyTasksWouldFit) {
  const Status status =
      CheckCanEverFit(Gang(5, {2, 0, 0, ""}), {Host("a", 4), Host("b", 5)});
  EXPECT_EQ(ReasonOf(status), "NEVER_FITS");
  EXPECT_THAT(Message(status), HasSubstr("its 5 tasks"));
  EXPECT_THAT(Message(status), HasSubstr("is 4 of them"));
}

TEST(NeverFitsTest, SumsBeyond64BitsAreNoSurprise) {
  JobSpec spec = Gang(1, {});
  spec.roles[0].count = 65536;
  spec.roles[0].resources = {65536, int64_t{1} << 60, 4096, ""};
  EXPECT_EQ(ReasonOf(CheckCanEverFit(spec, {Host("a", 4)})), "NEVER_FITS");
  HostCapacity huge = Host("a", 65536, 1);
  huge.capacity.memory_bytes = int64_t{1} << 60;
  spec.roles[0].resources.gpus = 0;
  EXPECT_EQ(ReasonOf(CheckCanEverFit(spec, {huge})), "NEVER_FITS");
}

}  // namespace
}  // namespace lockstep
