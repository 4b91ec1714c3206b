// A worker daemon whose ranks are containers, of an engine that is no more
// than shell scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "common/base/file.h"
#include "common/base/mutex.h"
#include "worker/agent/agent_fixture.h"
#include "worker/package/package_test_util.h"
#include "worker/shim/shim_client.h"

namespace lockstep::worker::agent {
namespace {

using container::ContainerEngine;
using container::ContainerMount;
using container::ContainerPlan;
using container::FoundContainer;
using container::ImageHere;
using container::kContainerDaemonLabel;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A container is the process whose number is in DIR/NAME.
class FakeEngine final : public ContainerEngine {
 public:
  explicit FakeEngine(std::string dir) : dir_(std::move(dir)) {}

  const std::string& version() const override { return version_; }
  const std::string& program() const override { return program_; }
  bool can_limit() const override { return true; }
  bool reports() const override { return false; }
  bool confines_root() const override { return confines_root_; }
  bool in_tree() const override { return true; }

  std::vector<std::string> RunArguments(
      const ContainerPlan& plan) const override {
    {
      MutexLock lock(&mu_);
      plans_.push_back(plan);
    }
    std::vector<std::string> argv = Shell(
        "echo $$ > " + JoinPath(dir_, plan.name) + "; exec \"$@\"", "run");
    argv.insert(argv.end(), plan.command.begin(), plan.command.end());
    argv.insert(argv.end(), plan.args.begin(), plan.args.end());
    return argv;
  }
  std::vector<std::string> Environment() const override {
    return {"PATH=/usr/bin:/bin"};
  }
  std::vector<std::string> ExecArguments(
      const container::ContainerCommand&) const override {
    return {};
  }
  std::vector<std::string> SignalArguments(
      const std::string& name) const override {
    auto argv = Shell("kill -$1 $(cat " + JoinPath(dir_, name) + ")", "signal");
    argv.push_back("%");
    return argv;
  }
  std::vector<std::string> InspectArguments(
      const std::string& /*name*/) const override {
    return Shell("echo exited 137 true", "inspect");
  }
  std::vector<std::string> RemoveArguments(
      const std::string& name) const override {
    return Shell(
        "[ ! -e " + dir_ + "-are-held ] && rm -f " + JoinPath(dir_, name),
        "remove");
  }

  StatusOr<ImageHere> EnsureImage(
      const ImageContent& wanted, MonoTime /*deadline*/,
      const std::function<bool(const std::string&)>& progress) override {
    ++ensured_;
    while (held_) {
      if (!progress("copying")) return Cancelled("it was ended");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (wanted.image == "bad:1") {
      return FailedPrecondition("there is no image bad:1");
    }
    MutexLock lock(&mu_);
    ImageHere here{{wanted.image, IdOf('1'), "", ""}, true};
    if (const auto it = ids_.find(wanted.image); it != ids_.end()) {
      here.content.id = it->second;
    }
    // The settled content is still there when the tag was moved.
    if (!wanted.id.empty()) here.content.id = wanted.id;
    return here;
  }
  Status Remove(const std::string& name, MonoTime /*deadline*/) override {
    MutexLock lock(&mu_);
    if (const auto it = failures_.find(name);
        it != failures_.end() && it->second-- > 0) {
      return Unavailable("the container {} cannot be removed: busy", name);
    }
    (void)RealFileSystem()->Remove(JoinPath(dir_, name));
    removed_.push_back(name);
    std::erase_if(found_, [&](const FoundContainer& container) {
      return container.name == name;
    });
    return OkStatus();
  }
  StatusOr<std::vector<FoundContainer>> List(const std::string& /*mark*/,
                                             MonoTime /*deadline*/) override {
    MutexLock lock(&mu_);
    return found_;
  }

  static std::string IdOf(char digit) {
    return "sha256:" + std::string(64, digit);
  }
  // What the name stands for from now on.
  void Tag(const std::string& image, const std::string& id) {
    MutexLock lock(&mu_);
    ids_[image] = id;
  }
  // While it does, no image comes.
  void Hold(bool held) { held_ = held; }
  int ensured() const { return ensured_; }
  void SetFound(std::vector<FoundContainer> found) {
    MutexLock lock(&mu_);
    found_ = std::move(found);
  }
  // The next removals of it fail.
  void SetFailures(const std::string& name, int count) {
    MutexLock lock(&mu_);
    failures_[name] = count;
  }
  void SetConfinesRoot(bool confines) { confines_root_ = confines; }
  std::vector<std::string> removed() const {
    MutexLock lock(&mu_);
    return removed_;
  }
  ContainerPlan plan() const {
    MutexLock lock(&mu_);
    return plans_.empty() ? ContainerPlan() : plans_.back();
  }

 private:
  static std::vector<std::string> Shell(const std::string& script,
                                        const std::string& name) {
    return {"/bin/sh", "-c", script, name};
  }

  const std::string dir_;
  const std::string version_ = "podman 9.9";
  const std::string program_ = "/bin/sh";
  std::atomic<bool> confines_root_ = true;
  std::atomic<bool> held_ = false;
  std::atomic<int> ensured_ = 0;
  mutable Mutex mu_;
  std::map<std::string, std::string> ids_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> failures_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<ContainerPlan> plans_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> removed_ ABSL_GUARDED_BY(mu_);
  std::vector<FoundContainer> found_ ABSL_GUARDED_BY(mu_);
};

class AgentContainerTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    ASSERT_TRUE(RealFileSystem()->MakeDirs(dir_ + "/containers").ok());
    engine_ = std::make_shared<FakeEngine>(dir_ + "/containers");
    UseEngine();
  }
  // Until the daemon has registered with it.
  void UseEngine() {
    coordinator_.Locked(
        [&] { coordinator_.registration.node.container_engine.clear(); });
    daemon_->Post([daemon = daemon_.get(), engine = engine_] {
      daemon->agent()->SetContainerEngine(engine);
    });
    ASSERT_TRUE(coordinator_.Eventually([&] {
      return coordinator_.registration.node.container_engine == "podman 9.9";
    }));
  }
  Assignment InContainer(Goal goal, const std::string& script,
                         const std::string& image = "image:1") {
    Assignment a = Order(goal, {script});
    if (!a.spec) return a;
    a.spec->tasks[0].container = Container{image, {"/bin/sh", "-c"}};
    a.spec->tasks[0].environment = {{"MINE", "1"}};
    a.spec->output_directory = dir_;
    a.spec->tasks[0].resources.memory_bytes = 64 << 20;
    return a;
  }
  void LaunchInContainer(const std::string& script) {
    coordinator_.Send(InContainer(Goal::kPrepare, script));
    ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
    coordinator_.Send(InContainer(Goal::kLaunch, script));
  }
  static ImageContent Content(const std::string& image, char digit) {
    return {image, FakeEngine::IdOf(digit), "", ""};
  }
  static Prefetch Ahead(std::vector<ImageContent> images) {
    Prefetch wanted;
    wanted.epoch = 1;
    wanted.images = std::move(images);
    return wanted;
  }
  std::vector<std::string> Containers() {
    return RealFileSystem()->List(dir_ + "/containers").value();
  }

  std::shared_ptr<FakeEngine> engine_;
};

TEST_F(AgentContainerTest, RunsARankInAContainerAndLeavesNone) {
  LaunchInContainer("echo hello; exit 3");
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  ASSERT_TRUE(Reported().ranks[0].exit.has_value());
  EXPECT_EQ(Reported().ranks[0].exit->value, 3);
  EXPECT_THAT(LogOf(0), HasSubstr("hello"));
  EXPECT_THAT(Containers(), IsEmpty());

  const ContainerPlan plan = engine_->plan();
  EXPECT_THAT(plan.name, testing::StartsWith("lockstep-job-g1-r0-"));
  // What was found, whatever the name may stand for by now.
  EXPECT_EQ(plan.image, FakeEngine::IdOf('1'));
  EXPECT_THAT(Reported().images, ElementsAre(Content("image:1", '1')));
  EXPECT_EQ(plan.labels.at(kContainerDaemonLabel), "1");
  EXPECT_EQ(plan.environment.at("MINE"), "1");
  EXPECT_EQ(plan.environment.at("LOCKSTEP_JOB"), "job");
  EXPECT_FALSE(plan.environment.contains("PATH"));
  EXPECT_FALSE(plan.user.has_value());
  EXPECT_EQ(plan.shm_bytes, 32 << 20);
  // Nothing here divides cgroups.
  EXPECT_EQ(plan.memory_bytes, 0);
  EXPECT_THAT(plan.mounts, testing::Contains(ContainerMount{dir_, false}));
  EXPECT_THAT(RealFileSystem()->Read(plan.environment_file, 1 << 20).value(),
              HasSubstr("MINE=1\n"));
}

// A directory that has the socket of every daemon to come, and one that has
// this rank's file alone.
TEST_F(AgentContainerTest, ARankFindsItsLinkAtThePathsOfTheHost) {
  LaunchInContainer("exit 0");
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ContainerPlan plan = engine_->plan();
  const std::string sockets = config_.daemon.runtime_dir + "/link";
  const std::string own = dir_ + "/tasks/job.g1/rank-0/link";
  EXPECT_EQ(plan.environment.at("LOCKSTEP_LINK_FILE"), own + "/file");
  EXPECT_THAT(plan.mounts, testing::Contains(ContainerMount{sockets, true}));
  EXPECT_THAT(plan.mounts, testing::Contains(ContainerMount{own, true}));
  EXPECT_THAT(RealFileSystem()->Read(own + "/file", 4096).value(),
              testing::StartsWith(sockets + "/sock\n"));
  EXPECT_THAT(RealFileSystem()->List(sockets).value(), ElementsAre("sock"));
}

TEST_F(AgentContainerTest, ShowsThePackagesOfTheJobAndNothingElseOfThem) {
  package::FakePackageSource source;
  package::PackageCacheOptions options;
  options.dir = dir_ + "/packages";
  auto cache = package::PackageCache::Open(options, &source);
  ASSERT_TRUE(cache.ok()) << cache.status();
  config_.prepare.packages = cache->get();
  StartAgain();
  UseEngine();
  const Package package =
      source.Put(package::TarWriter()
                     .File("setup.py", "setup(install_requires=['numpy'])")
                     .File("trainer/task.py", "print(1)")
                     .Gzipped(),
                 "trainer.tar.gz");
  Assignment order = InContainer(Goal::kPrepare, "echo path $PYTHONPATH");
  order.spec->packages = {package};
  order.spec->tasks[0].environment["PYTHONPATH"] = "/own";
  coordinator_.Send(order);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  ASSERT_THAT(Reported().events, testing::SizeIs(1));
  EXPECT_THAT(Reported().events[0].message, HasSubstr("install_requires"));
  Assignment launch = InContainer(Goal::kLaunch, "echo path $PYTHONPATH");
  launch.spec->packages = {package};
  launch.spec->tasks[0].environment["PYTHONPATH"] = "/own";
  coordinator_.Send(launch);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const std::string tree = dir_ + "/tasks/job.g1/code/tree-0";
  const ContainerPlan plan = engine_->plan();
  EXPECT_EQ(plan.environment.at("PYTHONPATH"), tree + ":/own");
  EXPECT_THAT(plan.mounts, testing::Contains(ContainerMount{tree, true}));
  daemon_.reset();
}

TEST_F(AgentContainerTest, FetchesPackagesAheadAndKeepsThem) {
  package::FakePackageSource source;
  package::PackageCacheOptions options;
  options.dir = dir_ + "/packages";
  options.limit_bytes = 1;
  auto cache = package::PackageCache::Open(options, &source);
  ASSERT_TRUE(cache.ok()) << cache.status();
  config_.prepare.packages = cache->get();
  StartAgain();
  const Package package =
      source.Put(package::TarWriter().File("a.py", "1").Gzipped(), "a.tar.gz");
  Prefetch wanted = Ahead({});
  wanted.packages = {package};
  coordinator_.Send(wanted);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return !coordinator_.prefetched.items.empty() &&
           coordinator_.prefetched.items[0].ready;
  }));
  EXPECT_EQ(coordinator_.Locked([&] {
    return coordinator_.prefetched.items[0].package_digest;
  }),
            package.digest);
  // Beyond the limit, and somebody waits for it.
  EXPECT_GT((*cache)->bytes(), 0u);
  coordinator_.Send(Ahead({}));
  EXPECT_TRUE(coordinator_.Eventually([&] { return (*cache)->bytes() == 0; }));
  EXPECT_EQ(source.fetches, 1);
  daemon_.reset();
}

TEST_F(AgentContainerTest, AnImageThatCannotBeHadIsARefusal) {
  coordinator_.Send(InContainer(Goal::kPrepare, "true", "bad:1"));
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_EQ(Reported().refusal.reason, Reason::kPrepareRefused);
  EXPECT_EQ(Reported().refusal.message, "there is no image bad:1");
}

TEST_F(AgentContainerTest, RunsWhatIsSettledThoughTheTagWasMoved) {
  engine_->Tag("image:1", FakeEngine::IdOf('2'));
  Assignment prepare = InContainer(Goal::kPrepare, "exit 0");
  coordinator_.Send(prepare);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  EXPECT_THAT(Reported().images, ElementsAre(Content("image:1", '2')));
  // Another node was first: this one gets ready once more.
  prepare.spec->images = {Content("image:1", '3')};
  coordinator_.Send(prepare);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return Peek().phase == GangPhase::kPrepared && !Peek().images.empty() &&
           Peek().images[0].id == FakeEngine::IdOf('3');
  }));
  Assignment launch = InContainer(Goal::kLaunch, "exit 0");
  launch.spec->images = prepare.spec->images;
  coordinator_.Send(launch);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(engine_->plan().image, FakeEngine::IdOf('3'));
  EXPECT_TRUE(Reported().ranks[0].exit->ok());
}

TEST_F(AgentContainerTest, FetchesAheadWhatIsWantedAndSaysHowItWent) {
  coordinator_.Send(Ahead({{"image:1", "", "", ""}, {"bad:1", "", "", ""}}));
  ASSERT_TRUE(coordinator_.Eventually([&] {
    const auto& items = coordinator_.prefetched.items;
    return items.size() == 2 && items[0].ready && !items[1].error.empty();
  }));
  const PrefetchReport said =
      coordinator_.Locked([&] { return coordinator_.prefetched; });
  EXPECT_EQ(said.items[0].content, Content("image:1", '1'));
  EXPECT_TRUE(said.items[0].fetched);
  EXPECT_EQ(said.items[1].error, "there is no image bad:1");
  EXPECT_FALSE(said.items[1].ready);
  coordinator_.Send(Ahead({}));
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.prefetched.items.empty(); }));
}

TEST_F(AgentContainerTest, AGangJoinsTheFetchThatIsUnderWay) {
  engine_->Hold(true);
  coordinator_.Send(Ahead({{"image:1", "", "", ""}}));
  ASSERT_TRUE(coordinator_.Eventually([&] { return engine_->ensured() == 1; }));
  coordinator_.Send(InContainer(Goal::kPrepare, "exit 0"));
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return !Peek().preparations.empty() &&
           Peek().preparations[0].detail == "image image:1: copying";
  }));
  // The job has left the queue.
  coordinator_.Send(Ahead({}));
  engine_->Hold(false);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  EXPECT_EQ(engine_->ensured(), 1);
}

TEST_F(AgentContainerTest, AGangThatGetsReadyGoesBeforeWhatIsFetchedAhead) {
  engine_->Hold(true);
  coordinator_.Send(InContainer(Goal::kPrepare, "exit 0"));
  ASSERT_TRUE(coordinator_.Eventually([&] { return engine_->ensured() == 1; }));
  coordinator_.Send(Ahead({{"other:1", "", "", ""}}));
  ASSERT_TRUE(coordinator_.Eventually(
      [&] { return coordinator_.prefetched.items.size() == 1; }));
  EXPECT_EQ(engine_->ensured(), 1);
  engine_->Hold(false);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  EXPECT_TRUE(coordinator_.Eventually([&] {
    return !coordinator_.prefetched.items.empty() &&
           coordinator_.prefetched.items[0].ready;
  }));
}

TEST_F(AgentContainerTest, ADaemonThatEndsDoesNotWaitForWhatItFetchesAhead) {
  engine_->Hold(true);
  coordinator_.Send(Ahead({{"image:1", "", "", ""}}));
  ASSERT_TRUE(coordinator_.Eventually([&] { return engine_->ensured() == 1; }));
  daemon_.reset();
}

TEST_F(AgentContainerTest, StopsItThroughTheEngine) {
  LaunchInContainer(
      "trap 'echo told; exit 4' TERM; echo ready; while :; do sleep 0.01; "
      "done");
  ASSERT_TRUE(AllAre(RankState::kStarted));
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return coordinator_.logs[RankRef{{"job", 1}, 0}].bytes.find("ready") !=
           std::string::npos;
  }));
  Assignment stop = InContainer(Goal::kStop, "");
  stop.grace = std::chrono::seconds(10);
  coordinator_.Send(stop);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Reported().ranks[0].exit->value, 4);
  EXPECT_THAT(LogOf(0), HasSubstr("told"));
  EXPECT_THAT(Containers(), IsEmpty());
}

TEST_F(AgentContainerTest, OutOfMemoryIsWhatTheEngineSays) {
  LaunchInContainer("exit 137");
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const ExitStatus exit = *Reported().ranks[0].exit;
  EXPECT_EQ(exit.how, ExitStatus::How::kSignal);
  EXPECT_TRUE(exit.out_of_memory);
}

TEST_F(AgentContainerTest, IsAdoptedByTheNextDaemon) {
  LaunchInContainer("echo ready; until [ -e " + dir_ +
                    "/go ]; do sleep 0.01; done; exit 6");
  ASSERT_TRUE(AllAre(RankState::kStarted));
  ++config_.daemon.node.incarnation.counter;
  StartDaemon();
  UseEngine();
  std::ofstream(dir_ + "/go") << "x";
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Reported().ranks[0].exit->value, 6);
  EXPECT_THAT(engine_->removed(), IsEmpty());  // Its shim did.
  EXPECT_THAT(Containers(), IsEmpty());
}

TEST_F(AgentContainerTest, OfAKilledShimItIsRemovedBeforeTheRankHasEnded) {
  LaunchInContainer("echo ready; sleep 100");
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const std::string name = engine_->plan().name;
  const auto record =
      shim::ReadTaskRecord(dir_ + "/tasks/job.g1/rank-0/task.record");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->container, name);
  const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
  ASSERT_TRUE(shim.ok()) << shim.status();
  ASSERT_TRUE(SendSignal(*shim, SIGKILL).ok());
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(engine_->removed(), ElementsAre(name));
  EXPECT_THAT(Containers(), IsEmpty());
}

TEST_F(AgentContainerTest, WhatAnEarlierDaemonLeftIsSweptAway) {
  LaunchInContainer("echo ready; sleep 100");
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const std::string mine = engine_->plan().name;
  ++config_.daemon.node.incarnation.counter;
  engine_->SetFound({{"old", "0"}, {mine, "1"}, {"new", "2"}});
  StartDaemon();
  UseEngine();
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return engine_->removed().size() == 2; }));
  EXPECT_THAT(engine_->removed(), ElementsAre("new", "old"));
  coordinator_.Send(InContainer(Goal::kStop, ""));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(engine_->removed().size(), 2u);
}

TEST_F(AgentContainerTest, WhatCannotBeRemovedIsTriedAgainAndKeepsNoOther) {
  ++config_.daemon.node.incarnation.counter;
  config_.container_sweep_every = std::chrono::milliseconds(20);
  engine_->SetFailures("a", 3);
  engine_->SetFound({{"a", "0"}, {"b", "1"}, {"c", "2"}});
  StartDaemon();
  UseEngine();
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return engine_->removed().size() == 3; }));
  EXPECT_THAT(engine_->removed(), ElementsAre("b", "c", "a"));
}

TEST_F(AgentContainerTest, WhatItsShimCouldNotRemoveIsRemovedLater) {
  config_.container_sweep_every = std::chrono::milliseconds(20);
  StartDaemon();
  UseEngine();
  LaunchInContainer("until [ -e " + dir_ + "/go ]; do sleep 0.01; done");
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const std::string name = engine_->plan().name;
  engine_->SetFound({{name, "1"}});
  std::ofstream(dir_ + "/containers-are-held") << "x";
  std::ofstream(dir_ + "/go") << "x";
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return !engine_->removed().empty(); }));
  EXPECT_THAT(engine_->removed(), ElementsAre(name));
}

TEST_F(AgentContainerTest, OfAKilledShimARemovalThatFailsIsTriedAgain) {
  config_.container_sweep_every = std::chrono::milliseconds(20);
  StartDaemon();
  UseEngine();
  LaunchInContainer("echo ready; sleep 100");
  ASSERT_TRUE(AllAre(RankState::kStarted));
  const std::string name = engine_->plan().name;
  engine_->SetFailures(name, 2);
  const auto record =
      shim::ReadTaskRecord(dir_ + "/tasks/job.g1/rank-0/task.record");
  ASSERT_TRUE(record.ok()) << record.status();
  const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
  ASSERT_TRUE(shim.ok()) << shim.status();
  ASSERT_TRUE(SendSignal(*shim, SIGKILL).ok());
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(
      coordinator_.Eventually([&] { return !engine_->removed().empty(); }));
  EXPECT_THAT(engine_->removed(), ElementsAre(name));
}

TEST_F(AgentContainerTest, ShowsTheDirectoryThatWasThereWhenItGotReady) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
  config_.daemon.user = TaskUser{12345, 12345, {}, "/nonexistent"};
  StartDaemon();
  UseEngine();
  const std::string out = dir_ + "/out";
  for (const std::string& target : {dir_ + "/first", dir_ + "/second"}) {
    ASSERT_TRUE(RealFileSystem()->MakeDirs(target).ok());
    ASSERT_EQ(chown(target.c_str(), 12345, 12345), 0);
  }
  struct stat first {};
  ASSERT_EQ(stat((dir_ + "/first").c_str(), &first), 0);
  ASSERT_EQ(symlink((dir_ + "/first").c_str(), out.c_str()), 0);
  Assignment a = InContainer(Goal::kPrepare, "exit 0");
  a.spec->output_directory = out;
  coordinator_.Send(a);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  ASSERT_EQ(unlink(out.c_str()), 0);
  ASSERT_EQ(symlink((dir_ + "/second").c_str(), out.c_str()), 0);
  a = InContainer(Goal::kLaunch, "exit 0");
  a.spec->output_directory = out;
  coordinator_.Send(a);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_THAT(engine_->plan().mounts,
              testing::Contains(ContainerMount{out, false, dir_ + "/first",
                                               first.st_dev, first.st_ino}));
}

TEST_F(AgentContainerTest, WhereRootIsTheHostsItIsWhoTheDaemonIs) {
  if (geteuid() == 0) GTEST_SKIP() << "needs a user who is not root";
  engine_->SetConfinesRoot(false);
  LaunchInContainer("exit 0");
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  ASSERT_TRUE(engine_->plan().user.has_value());
  EXPECT_EQ(engine_->plan().user->uid, geteuid());
  EXPECT_EQ(engine_->plan().user->gid, getegid());
}

}  // namespace
}  // namespace lockstep::worker::agent
