#include "client/cli/flag_names.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(FlagNamesTest, FieldsBecomeFlags) {
  EXPECT_EQ(WithTrainingFlags(std::string("trainingInput.masterType: no")),
            "--master-machine-type: no");
  // The longest counts.
  EXPECT_EQ(WithTrainingFlags(
                std::string("trainingInput.workerConfig.acceleratorConfig.type"
                            ": there is no X")),
            "--worker-accelerator.type: there is no X");
  EXPECT_EQ(WithTrainingFlags(std::string("jobId: x")), "JOB: x");
  EXPECT_EQ(WithSubmitFlags(std::string("spec.labels: x")), "--label: x");
  EXPECT_EQ(WithSubmitFlags(std::string("spec.argv[3]: x")),
            "the program behind --[3]: x");
}

TEST(FlagNamesTest, OtherTextsStay) {
  for (const std::string text :
       {"", "trainingInput.scheduling.priority: x", "trainingInput.regionX: x",
        "job a: trainingInput.region: x", "spec.nameless: x",
        "trainingInput.masterConfig: x"}) {
    EXPECT_EQ(WithTrainingFlags(text), text);
    EXPECT_EQ(WithSubmitFlags(text), text);
  }
}

TEST(FlagNamesTest, CodeAndReasonStay) {
  const Status status = WithSubmitFlags(WithReason(
      FailedPrecondition("spec.output_directory: taken"), "OUTPUT_IN_USE"));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status), "--output: taken");
  EXPECT_EQ(ReasonOf(status), "OUTPUT_IN_USE");
  EXPECT_TRUE(WithSubmitFlags(OkStatus()).ok());
}

}  // namespace
}  // namespace lockstep::cli
