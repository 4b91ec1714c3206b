// What ranks leave behind when their shim is killed: a child that took the
// variables away and left its session, where no cgroup holds it, and the shim's
// socket.
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/os/process.h"
#include "common/os/procfs.h"
#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class OrphanTest : public ClusterTest {
 protected:
  void Start() {
    const std::string file = Path("hidden");
    v1::JobSpec spec = Shell(
        "hides", 1,
        "env -i /usr/bin/setsid /bin/sh -c '/bin/sleep 1000 & echo $! > " +
            file + ".new; /bin/mv " + file + ".new " + file + "'; sleep 1000");
    spec.set_restart_budget(0);
    Submit(spec);
    const v1::Job job = WaitFor("hides", v1::JOB_STATE_RUNNING);
    node_ = job.tasks(0).node();
    const auto rank = ReadProcessStat(static_cast<pid_t>(PidOf(job, 0)));
    ASSERT_TRUE(rank.ok()) << rank.status();
    shim_ = Hold(rank->parent, "lockstep-shim");
    ASSERT_TRUE(Eventually([&] { return RealFileSystem()->Exists(file); }));
    const auto pid = static_cast<pid_t>(std::stoi(ReadFile(file)));
    ASSERT_TRUE(Eventually([&] {
      const auto stat = ReadProcessStat(pid);
      return stat.ok() && stat->command == "sleep" &&
             stat->parent == shim_.id.pid;
    }));
    child_ = Hold(pid, "sleep");
  }
  Process Hold(pid_t pid, const std::string& command) {
    const auto stat = ReadProcessStat(pid);
    EXPECT_TRUE(stat.ok() && stat->command == command) << pid;
    auto process = OpenVerified({pid, stat.ok() ? stat->start_time : 0});
    EXPECT_TRUE(process.ok()) << process.status();
    return process.ok() ? *std::move(process) : Process();
  }
  std::vector<std::string> Sockets() {
    std::vector<std::string> sockets;
    const std::string dir = JoinPath(cluster()->record().runtime_dir, node_);
    const auto names = RealFileSystem()->List(dir);
    EXPECT_TRUE(names.ok()) << names.status();
    for (const std::string& name : *names) {
      if (name.ends_with(".sock") && name != "link.sock") {
        sockets.push_back(name);
      }
    }
    return sockets;
  }

  std::string node_;
  Process shim_;
  Process child_;
};

TEST_F(OrphanTest, HiddenChildEndsWithAKilledShimAndStrangersDoNot) {
  Start();
  ASSERT_FALSE(HasFailure());
  ASSERT_THAT(Sockets(), SizeIs(1));
  SpawnOptions options;
  options.program = "/bin/sleep";
  options.argv = {"sleep", "1000"};
  options.new_session = true;
  const auto stranger = Spawn(options);
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  ASSERT_TRUE(SendSignal(shim_, SIGKILL).ok());
  WaitEnd("hides", v1::JOB_STATE_FAILED);
  EXPECT_TRUE(HasEnded(child_)) << "its gang has stopped";
  EXPECT_THAT(Sockets(), IsEmpty());
  EXPECT_FALSE(HasEnded(*stranger));
  EXPECT_TRUE(StopProcess(*stranger, Duration{}).ok());
}

// It falls to init, and the next daemon knows it by what this one wrote down.
TEST_F(OrphanTest, HiddenChildEndsWhenTheDaemonWasKilledFirst) {
  Start();
  ASSERT_FALSE(HasFailure());
  const std::string list =
      cluster()->layout().DaemonDir(node_) + "/tasks/hides.g1/rank-0/processes";
  ASSERT_TRUE(Eventually([&] {
    const auto text = RealFileSystem()->Read(list);
    return text.ok() &&
           text->find(fmt::format("{} {}\n", child_.id.pid,
                                  child_.id.start_time)) != std::string::npos;
  }));
  KillDaemon(node_);
  ASSERT_TRUE(SendSignal(shim_, SIGKILL).ok());
  ASSERT_TRUE(Eventually([&] { return HasEnded(shim_); }));
  EXPECT_FALSE(HasEnded(child_));
  StartDaemon(node_);
  WaitEnd("hides", v1::JOB_STATE_FAILED);
  EXPECT_TRUE(HasEnded(child_)) << "its gang has stopped";
  EXPECT_THAT(Sockets(), IsEmpty());
}

}  // namespace
}  // namespace lockstep
