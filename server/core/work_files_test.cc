#include "server/core/work_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

WorkDirectory Holding(int64_t files) {
  WorkDirectory work;
  work.files = files;
  work.bytes = files * 1024;
  for (int64_t i = 0; i < files; ++i) {
    work.entries.push_back({"file-" + std::to_string(i), 1024, {}, false});
  }
  return work;
}

std::vector<std::string> LeftBehind(const Job& job) {
  std::vector<std::string> messages;
  for (const Event& event : job.events) {
    if (event.reason == Reason::kWorkLeftBehind) {
      messages.push_back(event.message);
    }
  }
  return messages;
}

// Ran on a and b, failed, and waits for a place.
Scene Failed(std::optional<WorkDirectory> on_b) {
  Scene s = Failing();
  for (const NodeName node : {"a", "b"}) {
    if (on_b) s.Gang(node).work = {node == "b" ? *on_b : Holding(0)};
    s.Stopped(node);
  }
  s.job.not_before.reset();
  // Not at once in the same places.
  for (auto& [name, node] : s.view.nodes) node.takes_work = false;
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  return s;
}

TEST(WorkFilesTest, WhatANodeReportsAtTheEndIsTheTasks) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  s.Gang("a").work = {Holding(2)};
  s.Gang("b").work = {Holding(0)};
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kSucceeded);
  ASSERT_TRUE(s.job.tasks[0].work);
  EXPECT_EQ(*s.job.tasks[0].work, Holding(2));
  EXPECT_EQ(s.job.tasks[1].work, Holding(0));
  EXPECT_THAT(s.job.attempts.back().tasks[0].work->entries, IsEmpty());
  EXPECT_EQ(s.job.attempts.back().tasks[0].work->files, 2);
}

TEST(WorkFilesTest, AListThatIsNotOfAllItsTasksIsNotTaken) {
  Scene s = Running();
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  s.Gang("a").work = {Holding(2), Holding(3)};
  s.AllStopped();
  s.Settle();
  EXPECT_FALSE(s.job.tasks[0].work);
}

TEST(WorkFilesTest, ATaskThatMovesLeavesItsFilesBehind) {
  Scene s = Failed(Holding(3));
  s.Put({"a", "c"});
  EXPECT_THAT(
      LeftBehind(s.job),
      ElementsAre("worker 0 moved from node b to c: its working directory "
                  "stayed on b (3 files, 3 KiB)"));
  EXPECT_FALSE(s.job.tasks[1].work) << "of the new place nothing is known";
}

TEST(WorkFilesTest, AnEmptyDirectoryIsNoLoss) {
  Scene s = Failed(Holding(0));
  s.Put({"a", "c"});
  EXPECT_THAT(LeftBehind(s.job), IsEmpty());
}

TEST(WorkFilesTest, WhatIsNotKnownMayBeALoss) {
  Scene s = Failed(std::nullopt);
  s.Put({"c", "b"});
  EXPECT_THAT(LeftBehind(s.job),
              ElementsAre("chief 0 moved from node a to c: its working "
                          "directory stayed on a"));
}

TEST(WorkFilesTest, ATaskThatStaysOrChoseItsDirectoryLosesNothing) {
  Scene s = Failed(Holding(3));
  Job other = s.job;
  s.Put({"a", "b"});
  EXPECT_THAT(LeftBehind(s.job), IsEmpty());
  s.job = other;
  s.job.spec.working_directory = "/srv";
  s.Put({"c", "d"});
  EXPECT_THAT(LeftBehind(s.job), IsEmpty());
}

TEST(WorkFilesTest, FilesAreWhereTheTaskRan) {
  Scene s = Running();
  EXPECT_EQ(WorkSiteOf(s.job, 1)->node, "b");
  EXPECT_EQ(WorkSiteOf(s.job, 1)->type, TaskType::kWorker);
  EXPECT_EQ(WorkSiteOf(s.job, 7).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(WorkSiteOf(Queued().job, 0).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(WorkSiteOf(Preparing().job, 0).status().code(),
            StatusCode::kFailedPrecondition);
  s.job.spec.working_directory = "/srv";
  EXPECT_THAT(Message(WorkSiteOf(s.job, 1).status()), HasSubstr("/srv"));
}

TEST(WorkFilesTest, UntilItRunsInItsNewPlaceItsFilesAreInTheOld) {
  Scene s = Failed(Holding(3));
  s.Put({"a", "c"});
  ASSERT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(WorkSiteOf(s.job, 1)->node, "b");
  s.Prepared();
  s.Started();
  s.Settle();
  EXPECT_EQ(WorkSiteOf(s.job, 1)->node, "c");
}

}  // namespace
}  // namespace lockstep::server
