// What is deleted: by command, and by age.
#include <gmock/gmock.h>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RetentionTest : public CoordinatorTest {
 protected:
  RetentionTest() {
    options_.retention.on_deleted = [this](const std::string& uid) {
      gone_.push_back(uid);
    };
    Restart();
  }
  // A job that ends at once.
  void Ended(const JobName& name) {
    MustSubmit(NativeSpec(name, 1));
    ASSERT_TRUE(Cancel(name).ok());
    ASSERT_EQ(State(name), JobState::kCancelled);
  }
  std::vector<JobName> Names() {
    std::vector<JobName> names;
    for (const JobSnapshot& job : coordinator_->queries()->ListJobs()) {
      names.push_back(job.job->spec.name);
    }
    return names;
  }

  std::vector<std::string> gone_;
};

TEST_F(RetentionTest, DeletedJobIsGoneAndItsNameStaysTaken) {
  Ended("j");
  const std::string uid = Get("j").uid;
  const int64_t version = coordinator_->queries()->version();
  EXPECT_TRUE(coordinator_->queries()->FindLogOwner(uid).known);
  EXPECT_TRUE(coordinator_->queries()->FindLogOwner(uid).end_time);
  ASSERT_TRUE(Delete("j", "d1").ok());
  EXPECT_THAT(gone_, ElementsAre(uid));
  EXPECT_FALSE(coordinator_->queries()->FindLogOwner(uid).known);
  EXPECT_EQ(*Delete("j", "d1"), "gone") << "a repeat";
  EXPECT_EQ(ReasonOf(Delete("j").status()), "JOB_DELETED");
  EXPECT_EQ(coordinator_->queries()->GetJob("j").status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(Submit(NativeSpec("j", 1), "again").status()),
            "JOB_EXISTS");
  const auto news = WatchHub::Watch(hub_.get(), "", version, [] {}).Take();
  ASSERT_TRUE(news.ok());
  ASSERT_THAT(news->changes, SizeIs(1));
  EXPECT_EQ(news->changes[0].job, nullptr);
  EXPECT_EQ(news->changes[0].name, "j");
  Restart();
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_EQ(ReasonOf(Submit(NativeSpec("j", 1), "more").status()),
            "JOB_EXISTS");
}

TEST_F(RetentionTest, OnlyAJobThatHasEndedIsDeleted) {
  Connect(&a_);
  MustSubmit(NativeSpec("j", 1));
  Run();
  const Status status = Delete("j").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("cancel it first"));
  EXPECT_EQ(ReasonOf(Delete("k").status()), "NO_SUCH_JOB");
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(RetentionTest, StoreThatCannotWriteDeletesNothing) {
  Ended("j");
  store_.FailWith(Unavailable("i/o error"));
  EXPECT_FALSE(Delete("j").ok());
  clock_.Advance(24h * 40);
  Run();
  EXPECT_THAT(Names(), ElementsAre("j"));
  EXPECT_THAT(gone_, IsEmpty());
  store_.FailWith(OkStatus());
  Pass(5s);
  EXPECT_THAT(Names(), IsEmpty()) << "it was old";
}

TEST_F(RetentionTest, OldJobsGoInSmallPieces) {
  for (int i = 0; i < 120; ++i) Ended(fmt::format("old{}", i));
  clock_.Advance(24h * 30 - 1h);
  Run();
  Ended("new");
  EXPECT_THAT(Names(), SizeIs(121));
  clock_.Advance(1h + 1s);
  Run();
  EXPECT_THAT(Names(), SizeIs(71)) << "fifty at a time";
  Pass(3s);
  EXPECT_THAT(Names(), ElementsAre("new"));
  EXPECT_THAT(gone_, SizeIs(120));
}

TEST_F(RetentionTest, OldestGoWhereThereAreTooMany) {
  options_.retention.job_count = 3;
  Restart();
  MustSubmit(NativeSpec("live", 1));
  Run();
  for (int i = 0; i < 6; ++i) {
    clock_.Advance(1s);
    Ended(fmt::format("j{}", i));
  }
  Pass(2s);
  EXPECT_THAT(Names(), ElementsAre("j5", "j4", "j3", "live"));
}

TEST_F(RetentionTest, AnswersAreForgottenAfterADayWithoutCommands) {
  ASSERT_TRUE(Submit(NativeSpec("j", 1), "r1").ok());
  clock_.Advance(24h + 1min);
  Run();
  EXPECT_EQ(store_.Load()->requests.size(), 0u);
  EXPECT_EQ(ReasonOf(Submit(NativeSpec("j", 1), "r1").status()), "JOB_EXISTS");
}

// A node that was away comes back with what is left of a deleted job.
TEST_F(RetentionTest, RestsOfADeletedJobAreStopped) {
  Connect(&a_);
  MustSubmit(NativeSpec("j", 1));
  Run();
  a_.Disconnect();
  ASSERT_TRUE(Cancel("j").ok());
  ASSERT_TRUE(ForgetNode("a").ok());
  Run();
  ASSERT_EQ(State("j"), JobState::kCancelled);
  ASSERT_TRUE(Delete("j").ok());
  ASSERT_TRUE(FakeDaemon::Alive(*a_.Find("j")));
  Connect(&a_);
  Run();
  EXPECT_THAT(a_.gangs, IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
