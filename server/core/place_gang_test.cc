// Where one gang goes: place_gang.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "server/core/scenes.h"
#include "server/core/scheduler.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;

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
  hosts[0].bad_gpus = {0};
  const auto placement = PlaceGang(Gang(1, {1, 0, 1, ""}), hosts);
  ASSERT_TRUE(placement);
  EXPECT_THAT((*placement)[0].gpus, ElementsAre(1));
  EXPECT_FALSE(PlaceGang(Gang(2, {1, 0, 1, ""}), hosts));
}

TEST(PlaceGangTest, ChoosyTasksGoBeforeThoseThatTakeAnyGpu) {
  JobSpec spec = Gang(5, {1, 0, 1, "T4"});
  spec.roles.Edit()[0].resources.gpu_type = "";  // The chief.
  const std::vector<HostCapacity> hosts = {
      Host("a", 16, 64, {"T4", "T4", "T4", "T4"}), Host("b", 16, 64, {"V100"})};
  EXPECT_THAT(Placed(spec, hosts), ElementsAre("b", "a", "a", "a", "a"));
}

TEST(PlaceGangTest, GangsWithoutGpusLeaveGpuHostsAlone) {
  EXPECT_THAT(
      Placed(Gang(1, {1, 0, 0, ""}), {Host("a", 8, 64, {"T4"}), Host("b", 8)}),
      ElementsAre("b"));
}

// Its ps and chief too, if others have room.
TEST(PlaceGangTest, TasksWithoutGpusLeaveGpuHostsAlone) {
  JobSpec spec = ProgramSpec("j", {Role(TaskType::kChief, 1, {4, 0, 0, ""}),
                                   Role(TaskType::kWorker, 1, {4, 0, 2, ""}),
                                   Role(TaskType::kPs, 2, {2, 0, 0, ""})});
  EXPECT_THAT(Placed(spec, {Host("a", 64, 64, {"T4", "T4", "T4", "T4"}),
                            Host("b", 4), Host("c", 64, 64, {"T4"})}),
              ElementsAre("b", "a", "c", "c"));
}

TEST(PlaceGangTest, TasksWithoutGpusFitAllTheSame) {
  // By fewest GPUs the small tasks would take the room of the large one.
  JobSpec spec =
      ProgramSpec("j", {Role(TaskType::kChief, 1, {1, 8 * kGiB, 0, ""}),
                        Role(TaskType::kWorker, 1, {4, 2 * kGiB, 0, ""})});
  EXPECT_TRUE(PlaceGang(spec, {Host("a", 5, 8), Host("b", 4, 4, {"T4"})}));
}

TEST(PlaceGangTest, ContainersGoWhereAnEngineIs) {
  std::vector<HostCapacity> hosts = {Host("a", 64), Host("b", 4)};
  hosts[1].container_engine = "podman 4.3.1";
  JobSpec spec = Gang(2, {1, 0, 0, ""});
  spec.roles.Edit()[1].container = Container{"image", {}};
  EXPECT_THAT(Placed(spec, hosts), ElementsAre("a", "b"));
  hosts[1].container_engine.clear();
  EXPECT_FALSE(PlaceGang(spec, hosts));
}

// By GPUs or cores first, the large memory would come too late.
TEST(PlaceGangTest, WhatIsShortDecidesWhoGoesFirst) {
  JobSpec spec =
      ProgramSpec("j", {Role(TaskType::kChief, 1, {4, 1 * kGiB, 0, ""}),
                        Role(TaskType::kWorker, 1, {1, 8 * kGiB, 0, ""})});
  EXPECT_THAT(Placed(spec, {Host("a", 5, 8), Host("b", 4, 4)}),
              ElementsAre("b", "a"));
}

class RandomTest : public testing::Test {
 protected:
  int Upto(int n) { return static_cast<int>(random_() % n); }

  std::vector<HostCapacity> Hosts() {
    std::vector<HostCapacity> hosts;
    for (int i = 0; i < 1 + Upto(5); ++i) {
      std::vector<std::string> gpus;
      for (int g = Upto(4); g > 0; --g) gpus.push_back(Upto(2) ? "T4" : "V100");
      hosts.push_back(Host(std::string(1, 'a' + i), Upto(9), Upto(9), gpus));
      hosts.back().ready = Upto(5) > 0;
      hosts.back().allocated.cpus = Upto(3);
      if (!gpus.empty() && Upto(3) == 0) hosts.back().allocated_gpus = {0};
      if (Upto(2) == 0) hosts.back().container_engine = "podman";
    }
    return hosts;
  }

  JobSpec Spec() {
    JobSpec spec = Gang(1 + Upto(6), {});
    for (RoleSpec& role : spec.roles.Edit()) {
      role.resources = {static_cast<double>(Upto(4)), Upto(4) * kGiB, Upto(3),
                        Upto(2) ? "T4" : ""};
      if (role.resources.gpus == 0) role.resources.gpu_type = "";
      if (Upto(4) == 0) role.container = Container{"image", {}};
    }
    return spec;
  }

  // What is placed fits, and nothing is given twice.
  void Check(const JobSpec& spec, const std::vector<TaskPlacement>& placement,
             const std::vector<HostCapacity>& hosts) {
    for (const HostCapacity& host : hosts) {
      Resources used = host.allocated;
      std::vector<int32_t> gpus = host.allocated_gpus;
      bool any = false;
      for (const TaskPlacement& place : placement) {
        if (place.node != host.node) continue;
        any = true;
        const RoleSpec& role =
            spec.roles[place.type == TaskType::kChief ? 0 : 1];
        const Resources& need = role.resources;
        ASSERT_TRUE(!role.container || !host.container_engine.empty());
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
      ASSERT_LE(used.cpus, host.capacity.cpus + 1e-6);
      ASSERT_LE(used.memory_bytes, host.capacity.memory_bytes);
      std::sort(gpus.begin(), gpus.end());
      ASSERT_EQ(std::adjacent_find(gpus.begin(), gpus.end()), gpus.end());
    }
  }

  std::mt19937 random_{11};
};

TEST_F(RandomTest, NothingIsEverOverbooked) {
  int placed = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<HostCapacity> hosts = Hosts();
    const JobSpec spec = Spec();
    const auto placement = PlaceGang(spec, hosts);
    if (!placement) continue;
    ++placed;
    ASSERT_NO_FATAL_FAILURE(Check(spec, *placement, hosts));
  }
  EXPECT_GT(placed, 200);
}

TEST_F(RandomTest, NorWhereAGangWasBefore) {
  int same = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<HostCapacity> hosts = Hosts();
    Job job;
    job.spec = Spec();
    job.attempts.resize(1);
    // Nodes and GPUs that may be gone since, or never were.
    for (const RoleSpec& role : job.spec.roles) {
      for (int32_t index = 0; index < role.count; ++index) {
        TaskStatus task;
        task.type = role.type;
        task.index = index;
        task.node = std::string(1, 'a' + Upto(5));
        task.gpus = {Upto(4), Upto(4)};
        job.tasks.push_back(task);
      }
    }
    const ScheduleResult result = Schedule({{&job, {}, false}}, hosts, {});
    if (result.placed.empty()) {
      ASSERT_FALSE(PlaceGang(job.spec, hosts));
      continue;
    }
    const auto& placement = result.placed[0].placement;
    ASSERT_NO_FATAL_FAILURE(Check(job.spec, placement, hosts));
    same += std::equal(placement.begin(), placement.end(), job.tasks.begin(),
                       [](const TaskPlacement& a, const TaskStatus& b) {
                         return a.node == b.node;
                       });
  }
  EXPECT_GT(same, 30);
}

}  // namespace
}  // namespace lockstep::server
