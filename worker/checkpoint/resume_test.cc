#include "worker/checkpoint/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/checkpoint/checkpoint_test_util.h"
#include "worker/checkpoint/cleanup.h"
#include "worker/checkpoint/memory_file_system.h"

namespace lockstep::worker::checkpoint {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;

constexpr char kResumeRoot[] = "/out/checkpoints";

// Generation 1 saved 100, 200 and 300; generation 2 is to resume.
class ResumeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TakeOver(&fs_, kResumeRoot, kTestJob, 1).ok());
    for (int64_t step : {100, 200, 300}) {
      ASSERT_TRUE(TestCheckpoint(&fs_, kResumeRoot, {1, step, 1}).ok());
    }
    request_.job = kTestJob;
    request_.generation = 2;
    request_.lineage = {{1, 0}, {2, LineageEntry::kNotSaid}};
    request_.known = {1, 300};
  }
  static std::string Dir(const CheckpointKey& key) {
    return JoinPath(kResumeRoot, CheckpointName(key));
  }
  void Damage(int64_t step) {
    const std::string path = JoinPath(Dir({1, step}), kManifestName);
    ASSERT_TRUE(fs_.Create(path, 0644).value()->Append("x").ok());
  }
  void Remove(int64_t step) { ASSERT_TRUE(fs_.RemoveAll(Dir({1, step})).ok()); }
  // The step that is resumed from, 0 from the start, or -1 with the error in
  // `status_`.
  int64_t Resume() {
    auto result = FindResume(&fs_, kResumeRoot, request_);
    status_ = result.status();
    if (!result.ok()) return -1;
    damaged_ = result->damaged;
    return result->from ? result->from->manifest().step : 0;
  }
  std::vector<std::string> Names() { return fs_.List(kResumeRoot).value(); }
  void ExpectHolds(const std::string& words) {
    const std::vector<std::string> before = Names();
    EXPECT_EQ(Resume(), -1);
    EXPECT_EQ(ReasonOf(status_), kReasonNoCheckpoint) << status_;
    EXPECT_THAT(Message(status_), HasSubstr(words));
    EXPECT_EQ(Names(), before) << "nothing is renamed";
  }
  MemoryFileSystem fs_;
  ResumeRequest request_;
  Status status_;
  std::vector<Damaged> damaged_;
};

TEST_F(ResumeTest, TheNewestIntactOneCounts) {
  EXPECT_EQ(Resume(), 300);
  EXPECT_THAT(damaged_, IsEmpty());
}

TEST_F(ResumeTest, AProvenDamageFallsBackAndIsRemembered) {
  Damage(300);
  EXPECT_EQ(Resume(), 200);
  ASSERT_EQ(damaged_.size(), 1u);
  EXPECT_EQ(damaged_[0].name, "step-000000300.g1");
  EXPECT_THAT(damaged_[0].reason, HasSubstr("MANIFEST"));
  // The next generation finds it set aside: it is not missing.
  request_.generation = 3;
  EXPECT_EQ(Resume(), 200) << status_;
}

TEST_F(ResumeTest, AMissingKnownCheckpointHolds) {
  Remove(300);
  ExpectHolds("step-000000300.g1 of job mnist is missing in /out/checkpoints");
  // A newer one that the coordinator did not hear of is as good.
  request_.known = {1, 150};
  EXPECT_EQ(Resume(), 200) << status_;
}

TEST_F(ResumeTest, AnEmptyDirectoryInItsPlaceHoldsAndStaysEmpty) {
  ASSERT_TRUE(fs_.RemoveAll(kResumeRoot).ok());
  EXPECT_EQ(Resume(), -1);
  EXPECT_EQ(ReasonOf(status_), kReasonNoCheckpoint) << status_;
  EXPECT_FALSE(fs_.Exists(kResumeRoot)) << "made anew, it would be in the way";
  ASSERT_TRUE(fs_.RemoveAll("/out").ok());
  EXPECT_EQ(Resume(), -1);
  EXPECT_EQ(ReasonOf(status_), kReasonOutputMissing) << status_;
  EXPECT_FALSE(fs_.Exists("/out"));
}

TEST_F(ResumeTest, WithoutAKnownCheckpointAnEmptyDirectoryIsABeginning) {
  for (int64_t step : {100, 200, 300}) Remove(step);
  request_.known.reset();
  EXPECT_EQ(Resume(), 0) << status_;
}

TEST_F(ResumeTest, AllDamagedHoldsEachTime) {
  for (int64_t step : {100, 200, 300}) Damage(step);
  ExpectHolds("none of the 3 checkpoints in /out/checkpoints is intact");
  // Also where the coordinator never heard of any.
  request_.known.reset();
  ExpectHolds("step-000000300.g1 (");
}

TEST_F(ResumeTest, FromTheStartIsTheOnlyWayToBeginAnew) {
  for (int64_t step : {100, 200, 300}) Damage(step);
  request_.from_start = true;
  EXPECT_EQ(Resume(), 0) << status_;
  EXPECT_THAT(Names(), IsSupersetOf({"step-000000100.g1", "step-000000200.g1",
                                     "step-000000300.g1"}));
  // In another directory, too.
  ASSERT_TRUE(fs_.RemoveAll("/out").ok());
  EXPECT_EQ(Resume(), 0) << status_;
  EXPECT_TRUE(fs_.Exists(kResumeRoot));
}

TEST_F(ResumeTest, AnOrderedStepIsUsedAndNewerOnesStay) {
  request_.restore_step = 100;
  EXPECT_EQ(Resume(), 100) << status_;
  // What generation 2 then saves does not push them out.
  ASSERT_TRUE(TestCheckpoint(&fs_, kResumeRoot, {2, 150, 1}).ok());
  RetentionPolicy policy;
  policy.keep_last = 1;
  const std::vector<LineageEntry> lineage = {{1, 0}, {2, 100}};
  const auto deleted = ApplyRetention(&fs_, kResumeRoot, kTestJob, 2, lineage,
                                      {{2, 150}}, policy);
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_THAT(*deleted, ElementsAre(CheckpointKey{1, 100}));
  EXPECT_THAT(Names(),
              IsSupersetOf({"step-000000200.g1", "step-000000300.g1"}));
}

// A person went back to 100 and wants 300 after all.
TEST_F(ResumeTest, AnOrderedStepMayLieOffTheLineage) {
  ASSERT_TRUE(TestCheckpoint(&fs_, kResumeRoot, {2, 150, 1}).ok());
  request_.generation = 3;
  request_.lineage = {{1, 0}, {2, 100}, {3, LineageEntry::kNotSaid}};
  request_.known = {2, 150};
  EXPECT_EQ(Resume(), 150) << status_;
  request_.restore_step = 300;
  EXPECT_EQ(Resume(), 300) << status_;
}

TEST_F(ResumeTest, AnOrderedStepThatIsNotThereHolds) {
  request_.restore_step = 250;
  EXPECT_EQ(Resume(), -1);
  EXPECT_EQ(ReasonOf(status_), kReasonNoCheckpoint);
  EXPECT_THAT(Message(status_), HasSubstr("of the steps 100, 200, 300"));
  Damage(300);
  request_.restore_step = 300;
  EXPECT_EQ(Resume(), -1);
  EXPECT_EQ(ReasonOf(status_), kReasonNoCheckpoint);
  EXPECT_THAT(Message(status_), HasSubstr("step 300 is damaged"));
  EXPECT_THAT(Names(), Contains("step-000000300.g1"));
}

// A bad moment of the storage is no damage: an older one would lose work.
TEST_F(ResumeTest, AnIoErrorIsReturnedAndSetsNothingAside) {
  for (const int error : {EIO, ESTALE, ETIMEDOUT}) {
    for (const char* file : {"300.g1/MANIFEST", "300.g1/shard-00000"}) {
      fs_.FailReads(file, error);
      EXPECT_EQ(Resume(), -1);
      EXPECT_THAT(Message(status_), HasSubstr("cannot be read")) << file;
      EXPECT_EQ(ReasonOf(status_), "");
      EXPECT_THAT(Names(), Contains("step-000000300.g1"));
    }
  }
  fs_.FailReads("", 0);
  EXPECT_EQ(Resume(), 300) << status_;
}

}  // namespace
}  // namespace lockstep::worker::checkpoint
