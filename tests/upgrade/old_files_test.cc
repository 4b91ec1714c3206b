// Files of a worker daemon and of ranks that older programs wrote.
#include <gmock/gmock.h>

#include <csignal>
#include <cstring>

#include "common/model/reduction_plan.h"
#include "tests/cluster/step_model.h"
#include "tests/upgrade/testdata.h"
#include "worker/agent/store/task_store.h"
#include "worker/checkpoint/resume.h"
#include "worker/task/exit_record.h"
#include "worker/task/rank_page.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// As in make_fixtures.
constexpr int64_t kSteps = 40;
constexpr int64_t kBatch = 8;
constexpr int64_t kHeldStep = 12;

class OldFilesTest : public OldProgramTest {
 protected:
  std::string RankFile(const std::string& name) const {
    return Read("worker/tasks/held.g1/rank-0/" + name);
  }
};
LOCKSTEP_FOR_OLD_COMMITS(OldFilesTest, "worker");

TEST_P(OldFilesTest, TheDaemonFindsItsGangs) {
  TaskStore store(RealFileSystem(), Path("worker"));
  ASSERT_TRUE(store.Init().ok());
  const auto found = store.LoadAll();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->damaged, IsEmpty());
  auto said = SaidJobs();
  std::vector<std::string> names;
  ASSERT_FALSE(found->gangs.empty());
  for (const StoredGang& gang : found->gangs) {
    ASSERT_TRUE(said.contains(gang.assignment.job));
    const v1::Job& job = said[gang.assignment.job];
    names.push_back(gang.assignment.job);
    EXPECT_EQ(gang.assignment.job_uid, job.uid());
    EXPECT_EQ(gang.assignment.generation, job.generation());
    EXPECT_EQ(gang.assignment.goal, Goal::kGo);
    ASSERT_TRUE(gang.assignment.spec);
    ASSERT_TRUE(gang.assignment.cluster);
    EXPECT_EQ(gang.assignment.cluster->world_size, 2);
    EXPECT_EQ(gang.assignment.job_key.size(), 32u);
    EXPECT_EQ(gang.link_nonces.size(), 2u);
    EXPECT_EQ(gang.status.phase, GangPhase::kLaunched);
    ASSERT_EQ(gang.status.ranks.size(), 2u);
    for (const RankStatus& rank : gang.status.ranks) {
      EXPECT_EQ(rank.state, RankState::kJoined);
      EXPECT_EQ(rank.pid, job.tasks(rank.rank).ranks(0).pid());
    }
  }
  EXPECT_EQ(names.back(), "held");
  EXPECT_EQ(names.size(), said.count("gloo") + 1);
}

TEST_P(OldFilesTest, TheDaemonCountsOnAndKnowsWhomItObeyed) {
  const auto next = NextIncarnation(RealFileSystem(), Path("worker"));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(*next, 3u);
  const auto obeyed = LoadObeyed(RealFileSystem(), Path("worker"));
  ASSERT_TRUE(obeyed.ok()) << obeyed.status();
  EXPECT_EQ(obeyed->epoch, 1u);
}

TEST_P(OldFilesTest, RecordsOfARankAreRead) {
  const v1::Job held = SaidJobs()["held"];
  std::string error;
  task::TaskRecord record;
  ASSERT_TRUE(task::DecodeTaskRecord(RankFile("task.record"), &record, &error))
      << error;
  EXPECT_EQ(record.job, "held");
  EXPECT_EQ(record.generation, 1u);
  EXPECT_EQ(record.process.pid, held.tasks(0).ranks(0).pid());
  EXPECT_THAT(record.socket_path, HasSubstr("/run-node-a/"));
  task::ExitRecord exit;
  ASSERT_TRUE(task::DecodeExitRecord(RankFile("exit.record"), &exit, &error))
      << error;
  EXPECT_EQ(exit.process, record.process);
  EXPECT_EQ(exit.boot_id, record.boot_id);
  EXPECT_EQ(exit.kind, task::ExitKind::kSignaled);
  EXPECT_EQ(exit.wait_status, SIGKILL);
  EXPECT_GE(exit.log_bytes, RankFile("log").size());
}

TEST_P(OldFilesTest, ThePageOfARankIsRead) {
  std::string error;
  const auto reader = task::PageReader::Open(
      Path("worker/tasks/held.g1/rank-0/work/.lockstep-page"), &error);
  ASSERT_NE(reader, nullptr) << error;
  task::RankPage page;
  ASSERT_EQ(reader->Read(&page, &error), task::PageReader::Result::kOk)
      << error;
  EXPECT_EQ(page.progress.generation, 1u);
  EXPECT_EQ(page.progress.last_committed, kHeldStep);
  ASSERT_TRUE(page.has_counters);
  EXPECT_EQ(page.counters.steps_committed, static_cast<uint64_t>(kHeldStep));
  EXPECT_EQ(page.counters.last_checkpoint_step, 10);
}

// A package replaces the shim before its daemon is started again.
TEST_P(OldFilesTest, TheShimTakesTheSpecOfTheDaemonBefore) {
  std::string error;
  task::ShimSpec spec;
  ASSERT_TRUE(task::DecodeShimSpec(Read("shim.spec"), &spec, &error)) << error;
  EXPECT_EQ(spec.generation, 1u);
  EXPECT_FALSE(spec.argv.empty());
}

TEST_P(OldFilesTest, AGenerationResumesFromTheCheckpoint) {
  checkpoint::ResumeRequest request;
  request.job = "steps";
  request.generation = 2;
  request.lineage = {{1, 0}, {2, checkpoint::LineageEntry::kNotSaid}};
  request.known = {1, kSteps};
  const auto found = checkpoint::FindResume(
      RealFileSystem(), Path("output/checkpoints"), request);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->damaged, IsEmpty());
  EXPECT_THAT(found->strangers, IsEmpty());
  ASSERT_TRUE(found->from);
  EXPECT_EQ(found->from->manifest().step, kSteps);
  const auto shard = found->from->ReadShard(0);
  ASSERT_TRUE(shard.ok()) << shard.status();
  const std::vector<float> expected = ExpectedWeights(kSteps, kBatch);
  size_t first = 0;
  for (const StepTensor& tensor : kStepTensors) {
    const checkpoint::TensorView* const found = shard->Find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    ASSERT_EQ(found->bytes, tensor.elements * sizeof(float));
    EXPECT_EQ(std::memcmp(found->data, &expected[first], found->bytes), 0)
        << tensor.name;
    first += tensor.elements;
  }
}

TEST_P(OldFilesTest, TheReductionPlanIsReadAndWrittenAlike) {
  const std::string text = Read("plan.txt");
  const auto plan = ParseReductionPlan(text);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->ranks, 2);
  EXPECT_EQ(plan->parameters, std::size(kStepTensors));
  const auto again = Format(*plan);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, text);
}

}  // namespace
}  // namespace lockstep::worker::agent
