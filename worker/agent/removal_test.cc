// The worker daemon: what it removes, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/agent/agent_fixture.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/package/package_test_util.h"

namespace lockstep::worker::agent {
namespace {

using package::Eventually;

// The machine's, whose removals wait until they are let go.
class SlowRemoval final : public FileSystem {
 public:
  StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                 mode_t mode) override {
    return real_->Create(path, mode);
  }
  StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path,
                                                     mode_t mode) override {
    return real_->OpenAppend(path, mode);
  }
  StatusOr<std::string> Read(const std::string& path, uint64_t n) override {
    return real_->Read(path, n);
  }
  StatusOr<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    return real_->OpenRead(path);
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
    {
      MutexLock lock(&mu_);
      ++waiting_;
      while (!go_) changed_.Wait(&mu_);
      --waiting_;
    }
    return real_->RemoveAll(path);
  }
  Status SyncDir(const std::string& path) override {
    return real_->SyncDir(path);
  }

  int waiting() {
    MutexLock lock(&mu_);
    return waiting_;
  }
  void LetGo() {
    MutexLock lock(&mu_);
    go_ = true;
    changed_.NotifyAll();
  }

 private:
  FileSystem* const real_ = RealFileSystem();
  Mutex mu_;
  CondVar changed_;
  bool go_ ABSL_GUARDED_BY(mu_) = false;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
};

class RemovalTest : public AgentTest {
 protected:
  std::vector<std::string> Tasks() {
    return RealFileSystem()
        ->List(dir_ + "/tasks")
        .value_or(std::vector<std::string>{"not readable"});
  }
};

TEST_F(RemovalTest, NothingWaitsWhileAGangsFilesAreRemoved) {
  SlowRemoval slow;
  files_ = &slow;
  StartAgain();
  Launch({"/bin/sh", "-c", "exit 0"});
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  (void)LogOf(0);
  coordinator_.Send(Order(Goal::kForget, {}));
  EXPECT_TRUE(coordinator_.Eventually([&] { return slow.waiting() == 1; }));
  EXPECT_FALSE(RealFileSystem()->Exists(dir_ + "/tasks/job.g1"));
  const size_t beats =
      coordinator_.Locked([&] { return coordinator_.beats.size(); });
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.beats.size() >= beats + 2; }));
  // Nor does the next one of the same name.
  coordinator_.Locked([&] { return coordinator_.statuses.erase({"job", 1}); });
  coordinator_.Send(Order(Goal::kPrepare, {"sh"}));
  EXPECT_TRUE(Reaches(GangPhase::kPrepared));
  EXPECT_EQ(slow.waiting(), 1);
  slow.LetGo();
  EXPECT_TRUE(Eventually([&] { return Tasks().empty(); }));
  daemon_.reset();
}

TEST_F(RemovalTest, TheNextDaemonGoesOnWithIt) {
  daemon_.reset();
  ASSERT_TRUE(
      RealFileSystem()->MakeDirs(dir_ + "/tasks/.gone-1/code/tree-0").ok());
  StartDaemon();
  EXPECT_TRUE(Eventually([&] { return Tasks().empty(); }));
}

// What installs a package may outlive the daemon, and write on.
TEST_F(RemovalTest, WhoWritesToAGangOfNobodysIsKilledBeforeItIsRemoved) {
  daemon_.reset();
  const auto mark = DirectoryMark(RealFileSystem(), dir_);
  ASSERT_TRUE(mark.ok()) << mark.status();
  const std::string gang = dir_ + "/tasks/job.g9";
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c",
                  "while :; do mkdir -p " + gang + "/code/site/d; done"};
  options.program = options.argv[0];
  options.env = {"PATH=/usr/bin:/bin", fmt::format("{}={}", kTaskVariable,
                                                   TaskMark(*mark, "prepare"))};
  options.new_session = true;
  const auto pip = Spawn(options);
  ASSERT_TRUE(pip.ok()) << pip.status();
  EXPECT_TRUE(Eventually(
      [&] { return RealFileSystem()->Exists(gang + "/code/site/d"); }));
  StartDaemon();
  EXPECT_TRUE(HasEnded(*pip));
  EXPECT_TRUE(Eventually([&] { return Tasks().empty(); }));
  EXPECT_TRUE(StopProcess(*pip, {}).ok());
}

}  // namespace
}  // namespace lockstep::worker::agent
