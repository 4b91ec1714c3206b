#include "worker/agent/prepare/preparation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "worker/package/package_test_util.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class PreparationTest : public testing::Test {
 protected:
  void SetUp() override {
    package::PackageCacheOptions options;
    options.dir = dir_ / "packages";
    auto cache = package::PackageCache::Open(options, &source_);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    LocalTask task;
    task.argv = {"python3", "-m", "trainer.task"};
    task.ranks = {{0, 0, {}, 0}};
    input_.spec.kind = JobKind::kProgram;
    input_.spec.tasks = {task};
    const char* path = getenv("PATH");
    input_.preflight.path = path == nullptr ? "/usr/bin:/bin" : path;
    input_.preflight.task_directory = dir_ / "tasks/job.g1";
    input_.code_directory = dir_ / "tasks/job.g1/code";
    input_.tool_environment = {"PATH=" + input_.preflight.path};
    input_.packages = cache_.get();
    input_.port_ranges = {{20000, 32000}};
    input_.disk_space = [this](const std::string& path) {
      return path == "/dev/shm" ? shm_ : DiskSpace{1 << 30, 1 << 29};
    };
  }
  Package Tree() {
    return source_.Put(package::TarWriter()
                           .File("trainer/__init__.py", "")
                           .File("trainer/task.py", "print(1)")
                           .Gzipped(),
                       "trainer.tar.gz");
  }
  Prepared Run() {
    return Prepare(
        RealFileSystem(), input_,
        [this](const TaskPreparation& said) { said_.push_back(said); },
        &cancel_);
  }
  std::vector<std::string> PartsOf(const TaskPreparation& preparation) {
    std::vector<std::string> names;
    for (const TimedPart& part : preparation.parts) names.push_back(part.part);
    return names;
  }

  package::TempDir dir_;
  package::FakePackageSource source_;
  std::unique_ptr<package::PackageCache> cache_;
  PreparationInput input_;
  DiskSpace shm_{1 << 30, 1 << 29};
  std::vector<TaskPreparation> said_;
  package::Cancellation cancel_;
};

TEST_F(PreparationTest, EveryPartIsTimedAndSaid) {
  input_.spec.packages = {Tree()};
  input_.spec.services = {"jax", "horovod"};
  const Prepared prepared = Run();
  ASSERT_EQ(prepared.status, OkStatus());
  EXPECT_THAT(PartsOf(prepared.preparation),
              ElementsAre("fetch", "ports", "preflight"));
  EXPECT_EQ(prepared.preparation.current, "");
  std::vector<std::string> current;
  for (const TaskPreparation& said : said_) current.push_back(said.current);
  EXPECT_THAT(current, ElementsAre("preflight", "fetch", "ports", "preflight"));
  EXPECT_THAT(prepared.leases, SizeIs(4));
  EXPECT_THAT(prepared.ports, ElementsAre(prepared.leases[0].port()));
  EXPECT_EQ(prepared.master_port, prepared.leases[1].port());
  EXPECT_EQ(prepared.service_ports.at("jax"), prepared.leases[2].port());
  EXPECT_EQ(prepared.service_ports.at("horovod"), prepared.leases[3].port());
  EXPECT_THAT(prepared.packages, SizeIs(1));
}

TEST_F(PreparationTest, WithoutRankZeroThereIsOnePortATask) {
  input_.spec.tasks[0].ranks = {{3, 0, {}, 0}};
  input_.spec.services = {"jax"};
  const Prepared prepared = Run();
  ASSERT_EQ(prepared.status, OkStatus());
  EXPECT_THAT(prepared.leases, SizeIs(1));
  EXPECT_EQ(prepared.master_port, 0);
  EXPECT_THAT(prepared.service_ports, IsEmpty());
  // Without packages nothing is fetched, and the module is not looked for.
  EXPECT_THAT(PartsOf(prepared.preparation), ElementsAre("ports", "preflight"));
}

// The interpreter writes a line for each time that it is asked.
TEST_F(PreparationTest, TheSameModuleOfTheSamePackageIsLookedForOnce) {
  const std::string asked = dir_ / "asked";
  const std::string python = dir_ / "python3";
  ASSERT_TRUE(RealFileSystem()
                  ->WriteAtomic(python,
                                "#!/bin/sh\necho x >> " + asked +
                                    "\nexec python3 \"$@\"\n",
                                0755)
                  .ok());
  const auto times = [&] {
    const auto text = RealFileSystem()->Read(asked);
    return text.ok() ? text->size() / 2 : 0;
  };
  const auto run = [&] {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(input_.code_directory).ok());
    return Run().status;
  };
  ModuleAnswers answers;
  input_.module_answers = &answers;
  input_.spec.packages = {Tree()};
  input_.spec.tasks[0].argv = {python, "-m", "trainer.tsk"};
  EXPECT_FALSE(run().ok());
  EXPECT_FALSE(run().ok());
  EXPECT_EQ(times(), 2u) << "what is not there is looked for again";
  input_.spec.tasks[0].argv[2] = "trainer.task";
  EXPECT_EQ(run(), OkStatus());
  EXPECT_EQ(run(), OkStatus());
  EXPECT_EQ(times(), 3u);
  // Folders that may change any time.
  input_.spec.tasks[0].environment = {{"PYTHONPATH", dir_ / "more"}};
  EXPECT_EQ(run(), OkStatus());
  EXPECT_EQ(times(), 4u);
}

TEST_F(PreparationTest, PortsAreHeldUnlessAProgramCannotBearIt) {
  Prepared prepared = Run();
  ASSERT_EQ(prepared.status, OkStatus());
  EXPECT_THAT(prepared.leases.at(0).fds(), SizeIs(2));
  input_.hold_ports = false;
  prepared = Run();
  ASSERT_EQ(prepared.status, OkStatus());
  EXPECT_THAT(prepared.leases.at(0).fds(), SizeIs(1));
}

TEST_F(PreparationTest, AModuleThatIsNotInThePackageIsRefusedWithNearOnes) {
  input_.spec.packages = {Tree()};
  input_.spec.tasks[0].argv = {"python3", "-m", "trainer.tsk"};
  const Prepared prepared = Run();
  EXPECT_THAT(Message(prepared.status),
              AllOf(HasSubstr("there is no module trainer.tsk"),
                    HasSubstr("near are trainer.task")));
  EXPECT_EQ(RefusalOf(prepared.status).reason, Reason::kPrepareRefused);
  EXPECT_THAT(prepared.leases, IsEmpty());
  EXPECT_FALSE(RealFileSystem()->Exists(dir_ / "tasks/job.g1"));
}

TEST_F(PreparationTest, AnInterpreterThatIsNotHereIsRefusedByItsRuntime) {
  input_.spec.packages = {
      source_.Put("x", "a-1-py3-none-any.whl", PackageFormat::kWheel)};
  input_.spec.runtime = {"tf2.11", "/opt/none/bin/python3", false};
  EXPECT_THAT(Message(Run().status), HasSubstr("/opt/none/bin/python3"));
  EXPECT_EQ(source_.fetches, 0);
}

TEST_F(PreparationTest, ToldToStopItLeavesNothing) {
  input_.spec.packages = {Tree()};
  source_.hang_after = 0;
  std::thread thread([&] {
    EXPECT_TRUE(package::Eventually([&] { return source_.hanging == 1; }));
    cancel_.Cancel();
  });
  const Prepared prepared = Run();
  thread.join();
  EXPECT_EQ(prepared.status.code(), StatusCode::kCancelled);
  EXPECT_FALSE(RealFileSystem()->Exists(dir_ / "tasks/job.g1"));
  EXPECT_THAT(RealFileSystem()->List(dir_ / "packages").value(), IsEmpty());
  EXPECT_THAT(PartsOf(prepared.preparation), ElementsAre("fetch", "preflight"));
}

TEST_F(PreparationTest, SharedMemoryAndDiskMustDo) {
  shm_ = {8 << 20, 8 << 20};
  const Prepared small = Run();
  EXPECT_EQ(Message(small.status),
            "/dev/shm of this host has 8 MiB, and the tasks need 16: mount it "
            "with a larger size");
  EXPECT_EQ(RefusalOf(small.status).reason, Reason::kPrepareRefused);
  shm_ = {64 << 20, 1 << 20};
  const Prepared full = Run();
  EXPECT_THAT(Message(full.status), HasSubstr("1 of 64 MiB are free"));
  EXPECT_EQ(RefusalOf(full.status).reason, Reason::kNoCapacity);
  shm_ = {1 << 30, 1 << 29};
  // What is to come has room, too.
  Package large = Tree();
  large.bytes = int64_t{1} << 29;
  input_.spec.packages = {large};
  EXPECT_THAT(Message(Run().status), HasSubstr("nearly full"));
}

TEST_F(PreparationTest, ContainersNeedAnEngine) {
  input_.spec.tasks[0].container = Container{"image:1", {}};
  input_.spec.tasks[0].argv = {};
  EXPECT_THAT(Message(Run().status), HasSubstr("cannot run containers"));
}

TEST_F(PreparationTest, AScriptThatIsNotThereIsRefused) {
  input_.spec.tasks[0].argv = {"python3", "train.py"};
  input_.spec.working_directory = dir_.path();
  EXPECT_EQ(Message(Run().status),
            "the script " + dir_ / "train.py" + " is not on this host");
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(dir_ / "train.py", "").ok());
  EXPECT_EQ(Run().status, OkStatus());
}

TEST_F(PreparationTest, RefusalsSayWhetherToAskAgain) {
  EXPECT_EQ(RefusalOf(Unavailable("x")).reason, Reason::kNoCapacity);
  EXPECT_EQ(RefusalOf(ResourceExhausted("x")).reason, Reason::kNoCapacity);
  EXPECT_EQ(RefusalOf(DeadlineExceeded("x")).reason, Reason::kPrepareTimeout);
  EXPECT_EQ(RefusalOf(DataLoss("x")).reason, Reason::kPrepareRefused);
  EXPECT_EQ(RefusalOf(InvalidArgument("x")).reason, Reason::kPrepareRefused);
}

}  // namespace
}  // namespace lockstep::worker::agent
