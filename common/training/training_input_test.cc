#include "common/training/training_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TrainingJob File() {
  TrainingJob job;
  job.job_id = "from_file";
  job.labels = {{"team", "vision"}};
  TrainingInput& in = job.training_input;
  in.scale_tier = "CUSTOM";
  in.master.type = "n1-standard-8";
  in.master.config.accelerator_config =
      AcceleratorConfig{2, "NVIDIA_TESLA_V100"};
  in.worker = {"n1-standard-8", 1, {}};
  in.args = {"--epochs", "5"};
  in.use_chief_in_tf_config = true;
  in.scheduling.priority = 7;
  job.lockstep.env = {{"A", "1"}, {"B", "2"}};
  job.lockstep.ranks_per_gpu = true;
  return job;
}

TEST(TrainingInputTest, WhatIsOnTopBeatsWhatIsBelow) {
  TrainingJob flags;
  flags.job_id = "from_flag";
  flags.labels = {{"run", "1"}};
  TrainingInput& in = flags.training_input;
  in.region = "us-central1";
  in.master.config.image_uri = "gcr.io/p/i:1";
  in.master.config.accelerator_config = AcceleratorConfig{1, "NVIDIA_TESLA_T4"};
  in.worker.count = 0;
  in.args = {"trainer/task.py"};
  in.use_chief_in_tf_config = false;
  in.scheduling.priority = 0;
  flags.lockstep.env = {{"B", "3"}};
  flags.lockstep.ranks_per_task = 2;

  const TrainingJob both = Overlay(File(), flags);
  EXPECT_EQ(both.job_id, "from_flag");
  EXPECT_THAT(both.labels, ElementsAre(Pair("run", "1")));
  const TrainingInput& out = both.training_input;
  EXPECT_EQ(out.scale_tier, "CUSTOM");
  EXPECT_EQ(out.region, "us-central1");
  EXPECT_EQ(out.master.type, "n1-standard-8");
  EXPECT_EQ(out.master.config.image_uri, "gcr.io/p/i:1");
  EXPECT_EQ(out.master.config.accelerator_config,
            (AcceleratorConfig{1, "NVIDIA_TESLA_T4"}));
  EXPECT_EQ(out.worker.type, "n1-standard-8");
  EXPECT_EQ(out.worker.count, 0);  // Given, though it is 0.
  EXPECT_THAT(out.args, ElementsAre("trainer/task.py"));
  EXPECT_EQ(out.use_chief_in_tf_config, false);
  EXPECT_EQ(out.scheduling.priority, 0);
  EXPECT_THAT(both.lockstep.env, ElementsAre(Pair("A", "1"), Pair("B", "3")));
  EXPECT_EQ(both.lockstep.ranks_per_task, 2);
  EXPECT_FALSE(both.lockstep.ranks_per_gpu);
}

TEST(TrainingInputTest, NothingOnTopChangesNothing) {
  EXPECT_EQ(Overlay(File(), TrainingJob{}), File());
  EXPECT_EQ(Overlay(TrainingJob{}, File()), File());
}

TEST(TrainingInputTest, SecondsAreReadAsTheInterfaceWritesThem) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  EXPECT_EQ(ParseSecondsText("7200s").value(), seconds(7200));
  EXPECT_EQ(ParseSecondsText("0s").value(), seconds(0));
  EXPECT_EQ(ParseSecondsText("0.5s").value(), milliseconds(500));
  EXPECT_EQ(ParseSecondsText("1.000000001s").value(), seconds(1) + Duration(1));
  for (const char* text :
       {"", "s", "7200", "2h", "-1s", "+1s", "1.s", ".5s", "1e3s", " 1s", "1 s",
        "1.0000000001s", "1.5.5s", "99999999999999999999s", "9999999999s"}) {
    const auto duration = ParseSecondsText(text);
    EXPECT_THAT(Message(duration.status()), HasSubstr("such as 7200s")) << text;
  }
}

}  // namespace
}  // namespace lockstep
