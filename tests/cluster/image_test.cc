// Containers of a job that waits: their image is had before, and stays what it
// was when its tag is moved. With a podman or docker that works; skipped
// elsewhere.
#include "tests/cluster/image_fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class ImageTest : public ImageClusterTest {
 protected:
  void SetUp() override {
    ImageClusterTest::SetUp();
    if (Engine().empty()) GTEST_SKIP() << "no container engine works here";
  }

  // Its `which` says `word`. Moves the tag there.
  std::string MakeImage(const std::string& word) {
    return ImageClusterTest::MakeImage(
        image_, "which", "echo which " + word + "\n", "[\"which\"]");
  }
  v1::JobSpec InContainer(const std::string& name, int tasks) {
    v1::JobSpec spec = Program(name, tasks, {});
    for (v1::RoleSpec& role : *spec.mutable_roles()) {
      role.mutable_container()->set_image(image_);
    }
    return spec;
  }

  const std::string image_ = "localhost/lockstep-wait-" + RandomHex(4) + ":1";
};

TEST_F(ImageTest, BothRanksRunWhatTheTagWasWhenTheJobWaited) {
  const std::string first = MakeImage("first");
  Submit(Program("full", 2, {"sleep", "1000"}));
  WaitFor("full", v1::JOB_STATE_RUNNING);
  Submit(InContainer("waits", 2));
  const v1::Job waiting =
      WaitUntil("waits", "its image",
                [](const v1::Job& job) { return job.images_size() == 1; });
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(waiting.images(0).id(), first);
  EXPECT_EQ(waiting.images(0).image(), image_);
  const std::string second = MakeImage("second");
  ASSERT_NE(first, second);
  // Who comes now has what the name stands for now.
  Submit(InContainer("later", 2));
  WaitUntil("later", "its image",
            [](const v1::Job& job) { return job.images_size() == 1; });
  ASSERT_TRUE(client()->CancelJob("full").ok());
  const v1::Job job = WaitEnd("waits", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.images(0).id(), first);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Line("waits", rank, "which"), "which first") << rank;
  }
  const v1::Job later = WaitEnd("later", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(later.images(0).id(), second);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Line("later", rank, "which"), "which second") << rank;
  }
  int said = 0;
  for (const v1::Event& event : job.events()) {
    said += event.reason() == v1::REASON_IMAGE_PINNED;
  }
  EXPECT_EQ(said, 1);
}

TEST_F(ImageTest, WhatNobodyHasIsSaidWhileTheJobWaits) {
  Submit(Program("full", 2, {"sleep", "1000"}));
  WaitFor("full", v1::JOB_STATE_RUNNING);
  Submit(InContainer("waits", 1));
  const v1::Job job = WaitUntil("waits", "an event", [](const v1::Job& job) {
    for (const v1::Event& event : job.events()) {
      if (event.reason() == v1::REASON_PREFETCH_FAILED) return true;
    }
    return false;
  });
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  std::string said;
  for (const v1::Event& event : job.events()) {
    if (event.reason() == v1::REASON_PREFETCH_FAILED) said = event.message();
  }
  EXPECT_THAT(said,
              HasSubstr("image " + image_ + " is unavailable on worker-"));
  EXPECT_THAT(said, HasSubstr("is not on this node"));
  ASSERT_TRUE(client()->CancelJob("waits").ok());
  ASSERT_TRUE(client()->CancelJob("full").ok());
  WaitEnd("full", v1::JOB_STATE_CANCELLED);
}

}  // namespace
}  // namespace lockstep
