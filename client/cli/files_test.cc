// `lockstep jobs files` and `lockstep jobs cp`, and what is said of files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/cli/cli_fixture.h"
#include "client/cli/describe_tasks.h"
#include "client/cli/work_place.h"
#include "common/base/file.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

v1::WorkFile Entry(const std::string& path, int64_t bytes,
                   bool directory = false) {
  v1::WorkFile file;
  file.set_path(path);
  file.set_bytes(bytes);
  file.set_directory(directory);
  file.mutable_modify_time()->set_seconds(0);
  return file;
}

class FilesTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    v1::Job job = Ended("fashion", v1::JOB_STATE_SUCCEEDED);
    v1::TaskStatus* worker = job.add_tasks();
    worker->set_type(v1::TASK_TYPE_WORKER);
    worker->set_node("host-b");
    worker->add_ranks()->set_rank(1);
    ServeJob(job);
    server_->Update([&](FakeAnswers* a) {
      *a->folders["0/"].add_files() = Entry("logs", 5, true);
      *a->folders["0/"].add_files() = Entry("snapshot.pt", 20 << 20);
      *a->folders["1/"].add_files() = Entry("other", 1);
      *a->folders["0/logs"].add_files() = Entry("logs/events", 5);
      a->files["0/logs/events"] = "hello";
      a->files["0/empty"] = "";
    });
  }
  std::string Here(const std::string& name) {
    return RealFileSystem()->Read(dir_ + "/" + name).value_or("not there");
  }
  std::vector<std::string> Names() {
    return RealFileSystem()->List(dir_).value();
  }
};

TEST_F(FilesTest, FilesOfAllTasksAreListed) {
  EXPECT_EQ(Run({"jobs", "files", "fash"}), 0) << err_.str();
  EXPECT_EQ(out_.str(),
            "RANK  TASK      PATH         SIZE    MODIFIED\n"
            "0     chief 0   logs/        5 B     1970-01-01 00:00:00 UTC\n"
            "0     chief 0   snapshot.pt  20 MiB  1970-01-01 00:00:00 UTC\n"
            "1     worker 0  other        1 B     1970-01-01 00:00:00 UTC\n");
  EXPECT_EQ(Run({"jobs", "files", "fashion", "-o", "json"}), 0);
  const auto json = nlohmann::json::parse(out_.str());
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["rank"], 1);
  EXPECT_EQ(json[1]["files"][0]["path"], "other");
}

TEST_F(FilesTest, AFolderOfARankIsListed) {
  EXPECT_EQ(Run({"jobs", "files", "fashion", "0/logs/"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("logs/events"));
  EXPECT_EQ(Run({"jobs", "files", "fashion", "0/logs", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["files"][0]["path"],
            "logs/events");
  EXPECT_EQ(Run({"jobs", "files", "fashion", "0/logs", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "0/logs/events\n");
  EXPECT_EQ(Run({"jobs", "files", "fashion", "0/nothing"}), 3);
  EXPECT_EQ(Run({"jobs", "files", "fashion", "chief"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("does not begin with a rank"));
}

TEST_F(FilesTest, ATaskWithoutADirectoryIsLeftOut) {
  server_->Update([](FakeAnswers* a) { a->folders.erase("0/"); });
  EXPECT_EQ(Run({"jobs", "files", "fashion"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), Not(HasSubstr("chief")));
  EXPECT_THAT(out_.str(), HasSubstr("other"));
}

TEST_F(FilesTest, AFileIsFetchedUnderItsName) {
  EXPECT_EQ(Run({"jobs", "cp", "fashion:0/logs/events"}), 0) << err_.str();
  EXPECT_EQ(Here("events"), "hello");
  EXPECT_THAT(err_.str(), HasSubstr("events: 5 B"));
  EXPECT_EQ(Run({"jobs", "cp", "fash:0/empty", "nothing"}), 0) << err_.str();
  EXPECT_EQ(Here("nothing"), "");
  EXPECT_THAT(Names(), ElementsAre("events", "nothing"));
}

TEST_F(FilesTest, NothingIsReplacedUnasked) {
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(dir_ + "/events", "mine").ok());
  EXPECT_EQ(Run({"jobs", "cp", "fashion:0/logs/events"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--force"));
  EXPECT_EQ(Here("events"), "mine");
  EXPECT_EQ(Run({"jobs", "cp", "fashion:0/logs/events", "--force"}), 0)
      << err_.str();
  EXPECT_EQ(Here("events"), "hello");
}

TEST_F(FilesTest, AReadThatEndsEarlyLeavesNothing) {
  server_->Update([](FakeAnswers* a) { a->file_break = 4; });
  EXPECT_EQ(Run({"jobs", "cp", "fashion:0/logs/events"}), 6);
  EXPECT_THAT(err_.str(), HasSubstr("logs/events ended after 4 of 5 bytes"));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(FilesTest, WhatCannotBeMeantIsRefused) {
  EXPECT_EQ(Run({"jobs", "cp", "fashion"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("JOB:RANK/PATH"));
  EXPECT_EQ(Run({"jobs", "cp", "fashion:0"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("names no file"));
  EXPECT_EQ(Run({"jobs", "cp", "fashion:0/gone"}), 3);
  EXPECT_EQ(Run({"jobs", "cp", "fashion:0/logs/events", "no/such/folder"}), 3);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(FilesTest, DescribeSaysWhatIsLeft) {
  v1::Job job = server_->Answers().jobs[0];
  v1::WorkDirectory* work = job.mutable_tasks(0)->mutable_work();
  work->set_files(3);
  work->set_bytes(21 << 20);
  *work->add_entries() = Entry("snapshot.pt", 20 << 20);
  *work->add_entries() = Entry("wandb", 9, true);
  EXPECT_EQ(WorkText(job),
            "chief 0: 3 files in its working directory on node host-a, 21 MiB "
            "(snapshot.pt 20 MiB, wandb/)\n"
            "`lockstep jobs files fashion` lists them\n");
  work->set_files(0);
  EXPECT_EQ(WorkText(job), "");
}

TEST(WorkPlaceTest, ARankAndPerhapsAPath) {
  EXPECT_EQ(ParseWorkPlace("3")->rank, 3);
  EXPECT_EQ(ParseWorkPlace("3")->path, "");
  EXPECT_EQ(ParseWorkPlace("0/a/b/")->path, "a/b");
  for (const char* text : {"", "/a", "-1", "x/a", "1234567"}) {
    EXPECT_FALSE(ParseWorkPlace(text).ok()) << text;
  }
}

}  // namespace
}  // namespace lockstep::cli
