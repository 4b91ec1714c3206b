// The worker daemon: working directories of tasks, and the output directory
// that all hosts must see.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>

#include "common/model/output_identity.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/evidence/kept_evidence.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class AgentWorkTest : public AgentTest {
 protected:
  std::string Work(const std::string& task = "chief-0") const {
    return dir_ + "/work/uid/" + task;
  }
  bool Has(const std::string& path) { return files_->Exists(path); }
  void RunToEnd(const std::string& script, Generation generation = 1) {
    Launch({"/bin/sh", "-c", script}, JobKind::kProgram, 1, generation);
    ASSERT_TRUE(Reaches(GangPhase::kStopped, generation));
  }
  void Forget(Generation generation) {
    coordinator_.Send(
        Order(Goal::kForget, {}, JobKind::kProgram, 1, generation));
    ASSERT_TRUE(coordinator_.Eventually([&] {
      return !Has(fmt::format("{}/tasks/job.g{}", dir_, generation));
    }));
  }
  FileAnswer Ask(const std::string& path,
                 std::optional<FileQuery::Range> range = std::nullopt) {
    FileQuery query;
    query.id = ++last_id_;
    query.job = "job";
    query.job_uid = "uid";
    query.path = path;
    query.range = range;
    coordinator_.Send(query);
    EXPECT_TRUE(coordinator_.Eventually(
        [&] { return coordinator_.file_answers.contains(query.id); }));
    return coordinator_.Locked(
        [&] { return coordinator_.file_answers[query.id]; });
  }

  uint64_t last_id_ = 0;
};

TEST_F(AgentWorkTest, WhatAGenerationWroteTheNextOneFinds) {
  RunToEnd("echo one >> snapshot.pt; exit 3");
  ASSERT_THAT(Reported().work, SizeIs(1)) << "it came with the end";
  EXPECT_EQ(Reported().work[0].files, 1);
  EXPECT_EQ(Reported().work[0].bytes, 4);
  ASSERT_THAT(Reported().work[0].entries, SizeIs(1));
  EXPECT_EQ(Reported().work[0].entries[0].path, "snapshot.pt");
  Forget(1);
  RunToEnd("cat snapshot.pt; echo two >> snapshot.pt", 2);
  EXPECT_THAT(LogOf(0, 2), HasSubstr("one"));
  EXPECT_EQ(Reported(2).work[0].bytes, 8);
  Forget(2);
  EXPECT_EQ(files_->Read(Work() + "/snapshot.pt").value(), "one\ntwo\n");
}

TEST_F(AgentWorkTest, AnEmptyDirectoryGoesWithItsGang) {
  RunToEnd("true");
  EXPECT_EQ(Reported().work[0].files, 0);
  Forget(1);
  EXPECT_FALSE(Has(dir_ + "/work/uid"));
}

TEST_F(AgentWorkTest, AJobThatChoseItsDirectoryHasNone) {
  Assignment order = Order(Goal::kPrepare, {"/bin/sh", "-c", "pwd"});
  order.spec->working_directory = "/tmp";
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared));
  order = Order(Goal::kLaunch, {"/bin/sh", "-c", "pwd"});
  order.spec->working_directory = "/tmp";
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(LogOf(0), HasSubstr("/tmp"));
  EXPECT_THAT(Reported().work, IsEmpty());
  EXPECT_FALSE(Has(dir_ + "/work/uid"));
}

TEST_F(AgentWorkTest, WhatIsNoLongerWantedGoesOnceItIsNotInUse) {
  Launch({"/bin/sh", "-c", "echo x > file; exec sleep 1000"});
  ASSERT_TRUE(AllAre(RankState::kStarted));
  ASSERT_TRUE(coordinator_.Eventually([&] { return Has(Work() + "/file"); }));
  coordinator_.SendDropWork({"uid", "unknown", "../tasks"});
  // What comes after it was taken in later.
  EXPECT_EQ(Ask("file", FileQuery::Range{0, 9}).data, "x\n");
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(Has(Work() + "/file"));
  Forget(1);
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return !Has(dir_ + "/work/uid"); }));
  EXPECT_TRUE(Has(dir_ + "/tasks"));
}

TEST_F(AgentWorkTest, ADaemonTellsWhatItHasAndDropsItLater) {
  RunToEnd("echo x > file");
  Forget(1);
  StartAgain();
  EXPECT_THAT(Registered().work_jobs, ElementsAre("uid"));
  ASSERT_TRUE(
      KeptEvidence(RealFileSystem(), dir_)
          .Write({"job", 1}, "uid", {RankEvidence()}, SystemClock().Now().wall)
          .ok());
  coordinator_.SendDropWork({"uid"});
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return !Has(dir_ + "/evidence/job.g1"); }));
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return !Has(dir_ + "/work/uid"); }));
  StartAgain();
  EXPECT_THAT(Registered().work_jobs, IsEmpty());
}

TEST_F(AgentWorkTest, FilesOfALivingTaskAreRead) {
  Launch({"/bin/sh", "-c",
          "mkdir logs; echo hello > logs/events; exec sleep 1000"});
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return files_->Read(Work() + "/logs/events").value_or("") != "";
  }));
  FileAnswer answer = Ask("logs/events", FileQuery::Range{1, 3});
  EXPECT_EQ(answer.status, OkStatus());
  EXPECT_EQ(answer.data, "ell");
  EXPECT_EQ(answer.size, 6);
  answer = Ask("");
  ASSERT_THAT(answer.entries, SizeIs(1));
  EXPECT_EQ(answer.entries[0].path, "logs");
  EXPECT_EQ(answer.entries[0].bytes, 6);
  EXPECT_FALSE(Ask("../../../gang", FileQuery::Range{0, 9}).status.ok());
  EXPECT_EQ(Ask("nothing").status.code(), StatusCode::kNotFound);
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

TEST_F(AgentWorkTest, AFullDiskCostsTheOldestFirst) {
  RunToEnd("echo x > file");
  Forget(1);
  // An older one, of a job that is here.
  Assignment order = Order(Goal::kPrepare, {"/bin/sh", "-c", "exec sleep 99"});
  order.job = "other";
  order.job_uid = "busy";
  coordinator_.Send(order);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return coordinator_.statuses[{"other", 1}].phase == GangPhase::kPrepared;
  }));
  ASSERT_TRUE(files_->MakeDirs(dir_ + "/work/busy/chief-0").ok());
  ASSERT_TRUE(files_->WriteAtomic(dir_ + "/work/busy/chief-0/file", "x").ok());
  const timespec past[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/work/busy").c_str(), past, 0), 0);
  auto free = std::make_shared<std::atomic<uint64_t>>(uint64_t{100} << 30);
  config_.prepare.disk_space = [free](const std::string&) {
    return DiskSpace{uint64_t{1} << 40, *free};
  };
  // Not used for a day.
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/work/uid").c_str(), past, 0), 0);
  StartAgain();
  EXPECT_THAT(Registered().work_jobs, ElementsAre("busy", "uid"));
  coordinator_.Send(order);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return coordinator_.statuses[{"other", 1}].phase == GangPhase::kPrepared;
  }));
  *free = 1;
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return !Has(dir_ + "/work/uid"); }));
  EXPECT_TRUE(coordinator_.Eventually([&] {
    return daemon_->agent()->metrics()->Readings().dropped_work == 1;
  }));
  EXPECT_TRUE(Has(dir_ + "/work/busy/chief-0/file"));
}

// ---- The output directory ----

TEST_F(AgentWorkTest, TheNodeOfRankZeroNamesTheOutputDirectory) {
  Assignment order = Order(Goal::kPrepare, {"/bin/true"});
  order.spec->output_directory = dir_ + "/out";
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared));
  EXPECT_TRUE(IsOutputIdentity(Reported().output_identity));
  EXPECT_EQ(files_->Read(dir_ + "/out/.lockstep-directory").value(),
            Reported().output_identity + "\n");
  ASSERT_THAT(Reported().preparations, SizeIs(1));
  EXPECT_EQ(Reported().preparations[0].parts.back().part, kOutputPart);
}

TEST_F(AgentWorkTest, AnotherNodeLooksForItOnceItIsKnown) {
  config_.prepare.output_identity = {50ms, 5ms};
  StartAgain();
  Assignment order = Order(Goal::kPrepare, {"/bin/true"});
  order.spec->tasks[0].ranks[0].rank = 1;
  order.spec->output_directory = dir_ + "/out";
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared));
  const std::vector<int32_t> ports = Reported().ports;
  EXPECT_EQ(Reported().output_identity, "");
  EXPECT_FALSE(Has(dir_ + "/out/.lockstep-directory"));
  order.spec->output_identity = std::string(32, 'a');
  ASSERT_TRUE(
      files_
          ->WriteAtomic(dir_ + "/out/.lockstep-directory", std::string(32, 'a'))
          .ok());
  coordinator_.Send(order);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return Peek().phase == GangPhase::kPrepared &&
           Peek().output_identity == std::string(32, 'a');
  }));
  EXPECT_EQ(Reported().ports, ports) << "what it had it kept";
}

TEST_F(AgentWorkTest, ADirectoryThatIsNotSharedIsRefused) {
  config_.prepare.output_identity = {50ms, 5ms};
  StartAgain();
  Assignment order = Order(Goal::kPrepare, {"/bin/true"});
  order.spec->tasks[0].ranks[0].rank = 1;
  order.spec->output_directory = dir_ + "/out";
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared));
  order.spec->output_identity = std::string(32, 'a');
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_EQ(Reported().refusal.reason, Reason::kOutputNotShared);
  EXPECT_THAT(Reported().refusal.message,
              HasSubstr("the output directory " + dir_ +
                        "/out is not shared: this host does not see"));
}

// The wait must not hold up others, nor its own end.
TEST_F(AgentWorkTest, WhileItWaitsForTheDirectoryItCanBeStopped) {
  config_.prepare.output_identity = {std::chrono::hours(1), 5ms};
  StartAgain();
  Assignment order = Order(Goal::kPrepare, {"/bin/true"});
  order.spec->tasks[0].ranks[0].rank = 1;
  order.spec->output_directory = dir_ + "/out";
  order.spec->output_identity = std::string(32, 'a');
  coordinator_.Send(order);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return !Peek().preparations.empty() &&
           Peek().preparations[0].current == kOutputPart;
  }));
  Assignment other = Order(Goal::kPrepare, {"/bin/true"});
  other.job = "other";
  coordinator_.Send(other);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return coordinator_.statuses[{"other", 1}].phase == GangPhase::kPrepared;
  }));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
}

}  // namespace
}  // namespace lockstep::worker::agent
