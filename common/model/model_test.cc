#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/assignment.h"
#include "common/model/cluster_spec.h"
#include "common/model/job.h"
#include "common/model/names.h"
#include "common/model/resources.h"

namespace lockstep {
namespace {

TEST(NamesTest, JobNamesFollowTheirPattern) {
  EXPECT_TRUE(IsJobName("mnist_2-b"));
  EXPECT_TRUE(IsJobName(std::string(63, 'a')));
  for (const std::string& bad :
       {std::string(), std::string("2a"), std::string("a b"),
        std::string(64, 'a'), std::string("a/../b"), std::string("a\0b", 3),
        std::string("a\n"), std::string("\xc3\xa4")}) {
    EXPECT_FALSE(IsJobName(bad)) << bad;
  }
}

TEST(NamesTest, NodeNamesAreHostLabels) {
  EXPECT_TRUE(IsNodeName("gpu-07"));
  EXPECT_FALSE(IsNodeName("Gpu"));
  EXPECT_FALSE(IsNodeName("-a"));
  EXPECT_FALSE(IsNodeName("a-"));
}

TEST(NamesTest, NearestFindsTypingMistakesOnly) {
  const std::vector<std::string> jobs = {"mnist", "resnet", "bert"};
  EXPECT_EQ(Nearest("mnsit", jobs), "mnist");
  EXPECT_EQ(Nearest("zzz", jobs), "");
}

TEST(ResourcesTest, DescribeLeavesOutWhatIsZero) {
  EXPECT_EQ(Describe(Resources{2, int64_t{3} << 29, 1, "T4"}),
            "2 cpus, 1.5 GiB, 1 T4");
  EXPECT_EQ(Describe(Resources{1, 0, 1, ""}), "1 cpu, 1 GPU");
  EXPECT_EQ(Describe(Resources{0.5, 0, 2, ""}), "0.5 cpus, 2 GPUs");
  EXPECT_EQ(Describe(Resources{}), "nothing");
}

TEST(ResourcesTest, GpuModelsMatchByPart) {
  EXPECT_TRUE(GpuModelMatches("t4", "Tesla T4"));
  EXPECT_TRUE(GpuModelMatches("", "Tesla T4"));
  EXPECT_FALSE(GpuModelMatches("V100", "Tesla T4"));
  EXPECT_FALSE(GpuModelMatches("V100", ""));
}

TEST(ExitStatusTest, ReadsAsAPersonWouldSayIt) {
  ExitStatus exit;
  exit.how = ExitStatus::How::kSignal;
  exit.value = 9;
  EXPECT_EQ(Describe(exit), "killed by SIGKILL");
  EXPECT_EQ(ShellCode(exit), 137);
  exit.how = ExitStatus::How::kExecErrno;
  exit.value = ENOENT;
  EXPECT_EQ(ShellCode(exit), 127);
}

ClusterSpec TwoTasks() {
  ClusterSpec spec;
  spec.job = "j";
  spec.generation = 1;
  spec.world_size = 3;
  spec.tasks = {
      {TaskType::kChief, 0, "a", "10.0.0.1:2000", {{0, 0, {}}}},
      {TaskType::kWorker, 0, "b", "10.0.0.2:2001", {{1, 0, {0}}, {2, 1, {1}}}},
      {TaskType::kEvaluator, 0, "b", "10.0.0.2:2002", {{3, 0, {}}}}};
  spec.master_address = "10.0.0.1";
  spec.master_port = 3000;
  return spec;
}

TEST(ClusterSpecTest, CanonicalTextTellsSpecsApart) {
  ClusterSpec other = TwoTasks();
  EXPECT_EQ(CanonicalText(other), CanonicalText(TwoTasks()));
  other.tasks[1].ranks[1].gpus = {2};
  EXPECT_NE(CanonicalText(other), CanonicalText(TwoTasks()));
  other = TwoTasks();
  other.full_size = 4;
  EXPECT_NE(CanonicalText(other), CanonicalText(TwoTasks()));
}

TEST(ImageContentTest, IsTheSameByItsIdOrByItsDigest) {
  const ImageContent built{"a:1", "sha256:aa", "", ""};
  const ImageContent pulled{"a:1", "sha256:aa", "sha256:dd", "n"};
  const ImageContent elsewhere{"a:1", "sha256:bb", "sha256:dd", "m"};
  const ImageContent other{"a:1", "sha256:bb", "", ""};
  EXPECT_TRUE(IsSameContent(built, pulled));
  EXPECT_TRUE(IsSameContent(pulled, elsewhere));
  EXPECT_FALSE(IsSameContent(built, elsewhere));
  EXPECT_FALSE(IsSameContent(built, other));
  EXPECT_FALSE(IsSameContent({"a:1", "", "", ""}, {"a:1", "", "", ""}));
  EXPECT_EQ(ShownDigest(built), "sha256:aa");
  EXPECT_EQ(ShownDigest(pulled), "sha256:dd");
}

}  // namespace
}  // namespace lockstep
