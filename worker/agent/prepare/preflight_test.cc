#include "worker/agent/prepare/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::worker::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class PreflightTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-preflight-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    LocalTask task;
    task.argv = {"sh"};
    task.ranks = {{0, 0, {}}};
    spec_.tasks = {task};
    input_.spec = &spec_;
    input_.path = "/nowhere:/usr/bin:/bin";
    input_.task_directory = dir_;
    input_.gpus = {{0, "", "T4", 1}, {1, "", "T4", 1}};
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  std::string Complaint() {
    const Status status = Preflight(RealFileSystem(), input_);
    if (status.ok()) return "OK";
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    return Message(status);
  }
  // What is worth asking again.
  std::string Passing(FileSystem* files = RealFileSystem()) {
    const Status status = Preflight(files, input_);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    return Message(status);
  }

  std::string dir_;
  GangSpec spec_;
  PreflightInput input_;
};

TEST_F(PreflightTest, AProgramIsLookedUpInThePathOfTheJob) {
  EXPECT_EQ(Complaint(), "OK");
  spec_.tasks[0].argv = {"no-such-program-of-ours"};
  EXPECT_THAT(Complaint(), HasSubstr("not in PATH (/nowhere:/usr/bin:/bin)"));
  spec_.tasks[0].argv = {"sh"};
  spec_.tasks[0].environment["PATH"] = "/nowhere";
  EXPECT_THAT(Complaint(), HasSubstr("not in PATH (/nowhere)"));
}

TEST_F(PreflightTest, AProgramWithASlashIsTakenAsItIs) {
  spec_.tasks[0].argv = {"/bin/sh"};
  EXPECT_EQ(Complaint(), "OK");
  spec_.tasks[0].argv = {"./tool"};
  EXPECT_THAT(Complaint(), HasSubstr(dir_ + "/./tool is not on this host"));
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(dir_ + "/tool", "x", 0644).ok());
  EXPECT_THAT(Complaint(), HasSubstr("is not an executable file"));
  ASSERT_EQ(chmod((dir_ + "/tool").c_str(), 0755), 0);
  EXPECT_EQ(Complaint(), "OK");
  spec_.tasks[0].argv = {dir_ + "/"};
  EXPECT_THAT(Complaint(), HasSubstr("not an executable file"));
}

TEST_F(PreflightTest, TheOutputDirectoryIsMadeAndWrittenTo) {
  spec_.output_directory = dir_ + "/a/b/";
  EXPECT_EQ(Complaint(), "OK");
  EXPECT_THAT(RealFileSystem()->List(dir_ + "/a/b").value(), IsEmpty());
}

TEST_F(PreflightTest, RanksMayStartInTheOutputDirectoryThatIsMadeForThem) {
  spec_.output_directory = spec_.working_directory = dir_ + "/new/out";
  EXPECT_EQ(Complaint(), "OK");
  EXPECT_TRUE(RealFileSystem()->Stat(dir_ + "/new/out")->is_directory);
  spec_.working_directory = dir_ + "/new/other";
  EXPECT_THAT(Complaint(), HasSubstr("is not on this host"));
}

TEST_F(PreflightTest, AnOutputDirectoryThatCannotBeIsNamed) {
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(dir_ + "/file", "x").ok());
  spec_.output_directory = dir_ + "/file/out";
  EXPECT_THAT(Complaint(), HasSubstr("cannot create the output directory " +
                                     dir_ + "/file/out"));
  spec_.output_directory = dir_ + "/file";
  EXPECT_THAT(Complaint(), HasSubstr("/file"));
  // Even root cannot write there.
  spec_.output_directory = "/proc";
  EXPECT_THAT(Complaint(), HasSubstr("/proc is not writable"));
}

TEST_F(PreflightTest, TheOutputDirectoryIsMadeWithTheRightsOfTheTasksUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes somebody else";
  TaskUser user;
  user.uid = 12345;
  user.gid = 12346;
  user.groups = {12346, 12347};
  input_.user = user;
  ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
  spec_.output_directory = dir_;
  EXPECT_THAT(Complaint(), HasSubstr("user 12345: the output directory " +
                                     dir_ + " is not writable"));
  // Nor does root make what that user could not.
  spec_.output_directory = dir_ + "/made/for/it";
  EXPECT_THAT(Complaint(),
              HasSubstr("user 12345: cannot create the output directory " +
                        dir_ + "/made/for/it"));
  EXPECT_FALSE(RealFileSystem()->Exists(dir_ + "/made"));
  // Nor behind a link of the user's.
  ASSERT_TRUE(RealFileSystem()->MakeDirs(dir_ + "/open").ok());
  ASSERT_EQ(chmod((dir_ + "/open").c_str(), 0777), 0);
  ASSERT_EQ(symlink(dir_.c_str(), (dir_ + "/open/link").c_str()), 0);
  spec_.output_directory = dir_ + "/open/link/made";
  EXPECT_THAT(Complaint(), HasSubstr("cannot create the output directory"));
  EXPECT_FALSE(RealFileSystem()->Exists(dir_ + "/made"));
  // One of its groups may.
  ASSERT_EQ(chown(dir_.c_str(), 0, 12347), 0);
  ASSERT_EQ(chmod(dir_.c_str(), 0775), 0);
  spec_.output_directory = dir_ + "/made/for/it";
  EXPECT_EQ(Complaint(), "OK");
  EXPECT_THAT(RealFileSystem()->List(dir_ + "/made/for/it").value(), IsEmpty());
  for (const char* name : {"/made", "/made/for", "/made/for/it"}) {
    struct stat info {};
    ASSERT_EQ(stat((dir_ + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, user.uid);
    EXPECT_EQ(info.st_gid, user.gid);
  }
  EXPECT_EQ(geteuid(), 0u);
  EXPECT_TRUE(RealFileSystem()->MakeDirs(dir_ + "/again").ok());
}

TEST_F(PreflightTest, TheWorkingDirectoryMustBeThere) {
  spec_.working_directory = dir_ + "/none";
  EXPECT_THAT(Complaint(), HasSubstr("working directory"));
}

TEST_F(PreflightTest, AnAlmostFullDiskIsWaitedFor) {
  input_.state_directory = dir_;
  input_.disk = {100 << 20, 6 << 20};
  EXPECT_EQ(Complaint(), "OK");
  input_.disk = {100 << 20, 4 << 20};
  EXPECT_EQ(Passing(),
            "the disk of " + dir_ +
                " is nearly full: 4 MiB are free, and a start needs 5 MiB");
  // Of a large one a part would be too much.
  EXPECT_EQ(BytesOf({}, uint64_t{10} << 40), uint64_t{1} << 30);
  input_.disk = {uint64_t{10} << 40, uint64_t{2} << 30};
  EXPECT_EQ(Complaint(), "OK");
}

// Its output directory's disk is full for the moment.
class FullDisk final : public FileSystem {
 public:
  explicit FullDisk(int error) : error_(error) {}
  StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                 mode_t) override {
    return ErrnoStatus(error_, path);
  }
  StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path,
                                                     mode_t) override {
    return ErrnoStatus(error_, path);
  }
  StatusOr<std::string> Read(const std::string& path, uint64_t n) override {
    return real_->Read(path, n);
  }
  StatusOr<FileInfo> Stat(const std::string& path) override {
    return real_->Stat(path);
  }
  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return real_->List(path);
  }
  Status MakeDirs(const std::string& path, mode_t mode) override {
    return real_->MakeDirs(path, mode);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return real_->Rename(from, to);
  }
  Status Remove(const std::string& path) override {
    return real_->Remove(path);
  }
  Status RemoveAll(const std::string& path) override {
    return real_->RemoveAll(path);
  }
  Status SyncDir(const std::string& path) override {
    return real_->SyncDir(path);
  }

 private:
  FileSystem* const real_ = RealFileSystem();
  const int error_;
};

TEST_F(PreflightTest, AFullOutputDiskPassesAndAReadOnlyOneDoesNot) {
  spec_.output_directory = dir_;
  for (const int error : {ENOSPC, EDQUOT, EIO, ESTALE}) {
    FullDisk full(error);
    EXPECT_THAT(Passing(&full), HasSubstr("is not writable")) << error;
  }
  FullDisk read_only(EROFS);
  EXPECT_EQ(Preflight(&read_only, input_).code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(PreflightTest, GpusMustBeHereAndFree) {
  spec_.tasks[0].gpus = {1};
  spec_.tasks[0].resources.gpus = 1;
  EXPECT_EQ(Complaint(), "OK");
  input_.gpus_in_use = {1};
  EXPECT_THAT(Passing(), HasSubstr("GPU 1 is in use"));
  spec_.tasks[0].gpus = {2};
  EXPECT_THAT(Complaint(), HasSubstr("GPU 2 is not on this host"));
  spec_.tasks[0].gpus = {0};
  spec_.tasks[0].resources.gpus = 2;
  EXPECT_THAT(Complaint(), HasSubstr("needs 2 GPUs, but 1 are assigned"));
}

}  // namespace
}  // namespace lockstep::worker::agent
