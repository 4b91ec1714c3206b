#include "client/cli/lost_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::TaskStatus* AddTask(
    v1::TaskType type, int32_t rank, const std::string& node,
    google::protobuf::RepeatedPtrField<v1::TaskStatus>* to) {
  v1::TaskStatus* const task = to->Add();
  task->set_type(type);
  task->set_node(node);
  v1::RankStatus* const status = task->add_ranks();
  status->set_rank(rank);
  status->set_state(v1::RANK_STATE_JOINED);
  return task;
}

v1::Node MakeNode(const std::string& name, v1::NodeState state) {
  v1::Node node;
  node.set_name(name);
  node.set_state(state);
  node.mutable_last_heartbeat()->set_seconds(1'800'000'000);
  return node;
}

// Rank 0 on a, rank 1 on b.
v1::Job Running() {
  v1::Job job;
  job.set_attempt(1);
  job.set_generation(1);
  AddTask(v1::TASK_TYPE_CHIEF, 0, "a", job.mutable_tasks());
  AddTask(v1::TASK_TYPE_WORKER, 1, "b", job.mutable_tasks());
  return job;
}

TEST(LostLogsTest, ARankThatRunsOnASilentNode) {
  const v1::Job job = Running();
  const auto lost = [&](v1::NodeState state, const LogOptions& options) {
    return LostLogs(job,
                    {MakeNode("a", v1::NODE_STATE_READY), MakeNode("b", state)},
                    options);
  };
  const std::string sentence =
      "the log of rank 1 ends here: node b has been silent since 2027-01-15 "
      "08:00:00 UTC; later lines are on it";
  EXPECT_TRUE(HasOpenLogs(job, {}));
  EXPECT_THAT(lost(v1::NODE_STATE_UNKNOWN, {}), ElementsAre(sentence));
  EXPECT_THAT(lost(v1::NODE_STATE_LOST, {}), ElementsAre(sentence));
  EXPECT_THAT(lost(v1::NODE_STATE_READY, {}), IsEmpty());
  EXPECT_THAT(lost(v1::NODE_STATE_DRAINING, {}), IsEmpty());
  // Only the ranks that were asked for count.
  LogOptions options;
  options.ranks = {0};
  EXPECT_THAT(lost(v1::NODE_STATE_LOST, options), IsEmpty());
  options.ranks = {1};
  options.tasks = {"worker-replica-0"};
  EXPECT_THAT(lost(v1::NODE_STATE_LOST, options), ElementsAre(sentence));
  options.tasks = {"service"};
  EXPECT_THAT(lost(v1::NODE_STATE_LOST, options), IsEmpty());
  options = {};
  options.attempt = 2;
  EXPECT_THAT(lost(v1::NODE_STATE_LOST, options), IsEmpty());
}

TEST(LostLogsTest, WhatHasEndedIsWholeAndWhatNeverBeganHasNone) {
  v1::Job job = Running();
  const std::vector<v1::Node> nodes = {MakeNode("a", v1::NODE_STATE_LOST),
                                       MakeNode("b", v1::NODE_STATE_LOST)};
  job.mutable_tasks(0)->mutable_ranks(0)->mutable_exit()->set_code(1);
  job.mutable_tasks(1)->mutable_ranks(0)->set_state(v1::RANK_STATE_PREPARED);
  EXPECT_FALSE(HasOpenLogs(job, {}));
  EXPECT_THAT(LostLogs(job, nodes, {}), IsEmpty());
}

TEST(LostLogsTest, AttemptsBeforeAreLookedAtOnce) {
  v1::Job job = Running();
  job.set_attempt(2);
  job.set_generation(2);
  v1::Attempt* const first = job.add_attempts();
  first->set_ordinal(1);
  first->set_generation(1);
  AddTask(v1::TASK_TYPE_WORKER, 1, "gone", first->mutable_tasks());
  v1::Attempt* const second = job.add_attempts();
  second->set_ordinal(2);
  second->set_generation(2);
  *second->mutable_tasks() = job.tasks();
  EXPECT_THAT(
      LostLogs(job,
               {MakeNode("a", v1::NODE_STATE_READY),
                MakeNode("b", v1::NODE_STATE_LOST)},
               {}),
      ElementsAre("the log of rank 1 in attempt 1 ends here: node gone is no "
                  "longer in the cluster; later lines are on it",
                  "the log of rank 1 in attempt 2 ends here: node b has been "
                  "silent since 2027-01-15 08:00:00 UTC; later lines are on "
                  "it"));
}

}  // namespace
}  // namespace lockstep::cli
