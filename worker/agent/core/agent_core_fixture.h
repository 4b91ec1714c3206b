// The daemon's brain alone, with a gang of two ranks.
#ifndef LOCKSTEP_WORKER_AGENT_CORE_AGENT_CORE_FIXTURE_H_
#define LOCKSTEP_WORKER_AGENT_CORE_AGENT_CORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <vector>

#include "worker/agent/core/agent_core.h"

namespace lockstep::worker::agent {

class AgentCoreTest : public testing::Test {
 protected:
  using Kind = Action::Kind;

  AgentCoreTest() : core_(Options()) {}

  static AgentOptions Options() {
    AgentOptions options;
    options.node = "a";
    return options;
  }

  // Two ranks of a chief with two processes.
  static Assignment Order(Goal goal, Generation generation = 1) {
    Assignment a;
    a.job = "job";
    a.job_uid = "uid";
    a.generation = generation;
    a.epoch = 1;
    a.goal = goal;
    a.grace = std::chrono::seconds(5);
    a.stop_message = "enough";
    if (goal >= Goal::kStop) return a;
    LocalTask task;
    task.argv = {"train"};
    task.ranks = {{0, 0, {}}, {1, 1, {}}};
    a.spec.emplace();
    a.spec->tasks = {task};
    if (goal >= Goal::kLaunch) {
      a.cluster.emplace();
      a.cluster->job = "job";
      a.cluster->generation = generation;
      a.cluster->world_size = 2;
      a.cluster->tasks = {
          {TaskType::kChief, 0, "a", "10.0.0.1:2222", task.ranks},
          {TaskType::kWorker, 0, "b", "10.0.0.2:3333", {}}};
    }
    return a;
  }

  Actions Do(const Assignment& a) {
    Actions actions;
    EXPECT_TRUE(core_.OnAssignment(a, now_, &actions).ok());
    return actions;
  }
  Actions Do(Goal goal, Generation generation = 1) {
    return Do(Order(goal, generation));
  }
  void Prepare(Generation generation = 1) {
    Do(Goal::kPrepare, generation);
    Actions actions;
    core_.OnPrepared({"job", generation}, {{2222}, 2223}, now_, &actions);
  }
  Actions Exit(int32_t rank, int32_t code = 0, Generation generation = 1) {
    Actions actions;
    ExitStatus exit;
    exit.value = code;
    core_.OnRankExited({"job", generation}, rank, exit, RankProgress(), Usage(),
                       &actions);
    return actions;
  }
  GangStatus Status(Generation generation = 1) {
    const auto* gang = core_.Find({"job", generation});
    EXPECT_NE(gang, nullptr);
    return gang == nullptr ? GangStatus() : gang->status;
  }
  GangPhase Phase(Generation generation = 1) {
    return Status(generation).phase;
  }
  static std::vector<Kind> Kinds(const Actions& actions) {
    std::vector<Kind> kinds;
    for (const Action& action : actions) kinds.push_back(action.kind);
    return kinds;
  }

  AgentCore core_;
  Time now_{MonoTime(std::chrono::seconds(100)),
            WallTime(std::chrono::seconds(1000))};
  const GangKey key_{"job", 1};
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CORE_AGENT_CORE_FIXTURE_H_
