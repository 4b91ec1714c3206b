#include "worker/agent/work/work_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/wire/worker_wire.h"

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class WorkFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-files-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    top_ = name;
    ASSERT_EQ(chmod(name, 0755), 0);
    dir_ = top_ + "/chief-0";
    ASSERT_TRUE(files_->MakeDirs(dir_).ok());
    Write("../secret", "another job's");
  }
  void TearDown() override { EXPECT_TRUE(files_->RemoveAll(top_).ok()); }

  void Write(const std::string& path, const std::string& text) {
    const std::string full = dir_ + "/" + path;
    ASSERT_TRUE(files_->MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(files_->WriteAtomic(full, text).ok());
  }
  FileAnswer Ask(const std::string& path,
                 std::optional<FileQuery::Range> range = std::nullopt) {
    FileQuery query;
    query.id = 7;
    query.path = path;
    query.range = range;
    const FileAnswer answer =
        AnswerQuery(dir_, query, user_, limits_, [] { return MonotonicNow(); });
    EXPECT_EQ(answer.id, 7u);
    return answer;
  }
  FileAnswer Read(const std::string& path, int64_t offset = 0,
                  int64_t length = 100) {
    return Ask(path, FileQuery::Range{offset, length});
  }
  WorkDirectory Describe() {
    return DescribeWork(dir_, limits_, [] { return MonotonicNow(); });
  }
  static std::vector<std::string> Paths(const std::vector<WorkFile>& entries) {
    std::vector<std::string> paths;
    for (const WorkFile& file : entries) paths.push_back(file.path);
    return paths;
  }

  FileSystem* const files_ = RealFileSystem();
  std::string top_;
  std::string dir_;
  std::optional<TaskUser> user_;
  WalkLimits limits_;
};

TEST_F(WorkFilesTest, PartsOfAFileAreRead) {
  Write("logs/events", "0123456789");
  FileAnswer answer = Read("logs/events");
  EXPECT_EQ(answer.status, OkStatus());
  EXPECT_EQ(answer.data, "0123456789");
  EXPECT_EQ(answer.size, 10);
  answer = Read("logs/events", 4, 3);
  EXPECT_EQ(answer.data, "456");
  EXPECT_EQ(answer.size, 10);
  answer = Read("logs/events", 10);
  EXPECT_EQ(answer.status, OkStatus());
  EXPECT_EQ(answer.data, "");
  // Parts that stay within may go up.
  EXPECT_EQ(Read("logs/../logs/events").data, "0123456789");
}

TEST_F(WorkFilesTest, NothingOutsideIsOpened) {
  ASSERT_EQ(symlink("../secret", (dir_ + "/link").c_str()), 0);
  ASSERT_EQ(symlink("..", (dir_ + "/up").c_str()), 0);
  ASSERT_EQ(symlink("inside", (dir_ + "/near").c_str()), 0);
  ASSERT_EQ(symlink("/proc/self/root", (dir_ + "/magic").c_str()), 0);
  Write("inside", "x");
  for (const std::string& path :
       {std::string("../secret"), std::string("logs/../../secret"),
        top_ + "/secret", std::string("/etc/passwd"), std::string("link"),
        std::string("up/secret"), std::string("near"),
        std::string("magic/etc/passwd"), std::string("a\0b", 3)}) {
    const FileAnswer answer = Read(path);
    EXPECT_FALSE(answer.status.ok()) << path;
    EXPECT_EQ(answer.data, "") << path;
    EXPECT_FALSE(Ask(path).status.ok()) << path;
  }
  EXPECT_THAT(Message(Read("../secret").status),
              HasSubstr("leads out of the working directory"));
  EXPECT_THAT(Message(Read("/etc/passwd").status), HasSubstr("leads out"));
  EXPECT_THAT(Message(Read("link").status),
              HasSubstr("links are not followed"));
  EXPECT_EQ(Read("link").status.code(), StatusCode::kInvalidArgument);
}

// A pipe would hold up whoever opens it, and the program at its other end.
TEST_F(WorkFilesTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(mkfifo((dir_ + "/pipe").c_str(), 0644), 0);
  Write("folder/x", "x");
  FileAnswer answer = Read("pipe");
  EXPECT_EQ(answer.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(answer.status), HasSubstr("a special file"));
  answer = Read("folder");
  EXPECT_EQ(answer.status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(answer.status), HasSubstr("a folder"));
  EXPECT_FALSE(Ask("folder/x").status.ok()) << "a file is no folder to list";
  EXPECT_EQ(Read("nothing").status.code(), StatusCode::kNotFound);
  EXPECT_EQ(Read("folder/x/y").status.code(), StatusCode::kNotFound);
}

TEST_F(WorkFilesTest, AFolderIsListedByName) {
  Write("logs/b", "22");
  Write("logs/a", "1");
  Write("logs/deep/er/c", "333");
  ASSERT_EQ(symlink("a", (dir_ + "/logs/link").c_str()), 0);
  FileAnswer answer = Ask("logs");
  EXPECT_EQ(answer.status, OkStatus());
  EXPECT_THAT(Paths(answer.entries),
              ElementsAre("logs/a", "logs/b", "logs/deep"));
  EXPECT_EQ(answer.entries[1].bytes, 2);
  EXPECT_FALSE(answer.entries[1].directory);
  EXPECT_TRUE(answer.entries[2].directory);
  EXPECT_EQ(answer.entries[2].bytes, 3);
  EXPECT_FALSE(answer.truncated);
  EXPECT_THAT(Paths(Ask("").entries), ElementsAre("logs"));
}

TEST_F(WorkFilesTest, ALongListIsCut) {
  for (int i = 0; i < 1010; ++i) Write("f" + std::to_string(i), "");
  const FileAnswer answer = Ask("");
  EXPECT_THAT(answer.entries, SizeIs(kMaxListedFiles));
  EXPECT_TRUE(answer.truncated);
}

TEST_F(WorkFilesTest, ADirectoryThatIsGoneIsSaidSo) {
  ASSERT_TRUE(files_->RemoveAll(dir_).ok());
  EXPECT_EQ(Read("x").status.code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(Ask("").status),
              HasSubstr("chief 0 is not on this node"));
  EXPECT_EQ(Describe(), WorkDirectory());
}

TEST_F(WorkFilesTest, WhatIsThereIsCountedAndTheNewestNamed) {
  Write("old", "1");
  const timespec past[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/old").c_str(), past, 0), 0);
  Write("wandb/run-1/log", "22");
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/wandb").c_str(), past, 0), 0);
  Write("snapshot.pt", "333");
  const WorkDirectory work = Describe();
  EXPECT_EQ(work.files, 3);
  EXPECT_EQ(work.bytes, 6);
  EXPECT_FALSE(work.truncated);
  EXPECT_THAT(Paths(work.entries), ElementsAre("snapshot.pt", "old", "wandb"));
  EXPECT_TRUE(work.entries[2].directory);
  EXPECT_EQ(work.entries[2].bytes, 2);
  EXPECT_EQ(ToUnixNanos(work.entries[1].modify_time), 1000'000'000'000);
}

// What the coordinator would refuse must not cost the node its stream.
TEST_F(WorkFilesTest, TimesOfAnyYearFitTheMessages) {
  for (const int64_t second : {int64_t{-1}, int64_t{10'413'792'000}}) {
    Write("file", "x");
    const timespec times[2] = {{second, 5}, {second, 5}};
    ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/file").c_str(), times, 0), 0);
    GangStatus gang;
    gang.job = "j";
    gang.generation = 1;
    gang.work = {Describe()};
    ASSERT_THAT(gang.work[0].entries, SizeIs(1));
    const auto told = FromProto(ToProto(gang));
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_THAT(told->work, SizeIs(1)) << second;
    EXPECT_TRUE(FromProto(ToProto(Ask(""))).ok());
  }
}

TEST_F(WorkFilesTest, TheWalkHasLimits) {
  for (int i = 0; i < 30; ++i) Write("f" + std::to_string(i), "x");
  EXPECT_THAT(Describe().entries, SizeIs(kMaxWorkEntries));
  EXPECT_EQ(Describe().files, 30);
  limits_.entries = 10;
  EXPECT_EQ(Describe().files, 10);
  EXPECT_TRUE(Describe().truncated);
  limits_ = WalkLimits();
  limits_.depth = 1;
  Write("a/b/c", "x");
  EXPECT_EQ(Describe().files, 30);
  EXPECT_TRUE(Describe().truncated);
}

TEST_F(WorkFilesTest, AsTheTasksUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  Write("roots", "x");
  ASSERT_EQ(chmod((dir_ + "/roots").c_str(), 0600), 0);
  EXPECT_EQ(Read("roots").data, "x");
  user_ = TaskUser{12345, 12345, {}, "/"};
  EXPECT_EQ(Read("roots").status.code(), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace lockstep::worker::agent
