// The worker daemon: gangs that bring their code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <future>
#include <system_error>

#include "common/base/random.h"
#include "worker/agent/agent_fixture.h"
#include "worker/package/package_test_util.h"

namespace lockstep::worker::agent {
namespace {

using package::Eventually;
using package::FakePackageSource;
using package::PackageCache;
using package::PackageCacheOptions;
using package::TarWriter;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class AgentPackageTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    if (HasFatalFailure()) return;
    PackageCacheOptions options;
    options.dir = dir_ + "/packages";
    auto cache = PackageCache::Open(options, &source_);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    config_.prepare.packages = cache_.get();
    const char* path = getenv("PATH");
    config_.daemon.environment["PATH"] =
        path == nullptr ? "/usr/bin:/bin" : path;
    StartAgain();
  }
  Assignment With(Goal goal, const std::vector<std::string>& argv,
                  const Package& package) {
    Assignment order = Order(goal, argv);
    if (order.spec) order.spec->packages = {package};
    return order;
  }
  const std::vector<std::string> argv_ = {"python3", "-m", "trainer.task",
                                          "--steps", "7"};

  FakePackageSource source_;
  std::unique_ptr<PackageCache> cache_;
};

TEST_F(AgentPackageTest, AModuleOfATreePackageRuns) {
  const Package package =
      source_.Put(TarWriter()
                      .File("trainer/__init__.py", "")
                      .File("trainer/task.py",
                            "import os, sys, helper\n"
                            "print('module', sys.argv[1:], helper.VALUE)\n"
                            "print('path', os.environ['PYTHONPATH'])\n")
                      .File("helper.py", "VALUE = 42\n")
                      .Gzipped(),
                  "trainer.tar.gz");
  Assignment prepare = With(Goal::kPrepare, argv_, package);
  prepare.spec->tasks[0].environment["PYTHONPATH"] = "/own";
  prepare.spec->services = {"jax"};
  coordinator_.Send(prepare);
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  const GangStatus prepared = Reported();
  ASSERT_THAT(prepared.preparations, SizeIs(1));
  EXPECT_EQ(prepared.preparations[0].current, "");
  std::vector<std::string> parts;
  for (const TimedPart& part : prepared.preparations[0].parts) {
    parts.push_back(part.part);
  }
  EXPECT_THAT(parts, ElementsAre("fetch", "ports", "preflight"));
  const int32_t service = prepared.service_ports.at("jax");
  EXPECT_EQ(PortLease::Adopt(service).status().code(),
            StatusCode::kAlreadyExists);

  Assignment launch = With(Goal::kLaunch, argv_, package);
  launch.spec->tasks[0].environment["PYTHONPATH"] = "/own";
  launch.spec->services = {"jax"};
  coordinator_.Send(launch);
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  const GangStatus said = Reported();
  EXPECT_TRUE(said.ranks[0].exit->ok()) << LogOf(0);
  ASSERT_THAT(said.preparations, SizeIs(1));
  EXPECT_EQ(said.preparations[0].parts.back().part, "exec");
  EXPECT_GT(said.preparations[0].parts.back().duration, Duration{});
  const std::string log = LogOf(0);
  EXPECT_THAT(log, HasSubstr("module ['--steps', '7'] 42"));
  EXPECT_THAT(log,
              HasSubstr("path " + dir_ + "/tasks/job.g1/code/tree-0:/own"));
  coordinator_.Send(Order(Goal::kForget, {}));
  EXPECT_TRUE(coordinator_.Eventually(
      [&] { return RealFileSystem()->List(dir_ + "/tasks")->empty(); }));
  EXPECT_THAT(RealFileSystem()->List(dir_ + "/packages").value(), SizeIs(1));
}

TEST_F(AgentPackageTest, AnEvilEntryIsRefusedByItsName) {
  coordinator_.Send(
      With(Goal::kPrepare, argv_,
           source_.Put(
               TarWriter().Link("out", "/etc").File("out/evil", "x").Gzipped(),
               "evil.tar.gz")));
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_EQ(Reported().refusal.reason, Reason::kPrepareRefused);
  EXPECT_EQ(Reported().refusal.message,
            "package evil.tar.gz: rejected entry \"out\": it is a link to "
            "\"/etc\", which is outside the folder");
  EXPECT_THAT(RealFileSystem()->List(dir_ + "/tasks").value(), IsEmpty());
}

TEST_F(AgentPackageTest, AFetchIsSaidWhileItGoesOnAndStopEndsIt) {
  const Package package =
      source_.Put(TarWriter().File("f", RandomBytes(50000)).Gzipped(), "f.tgz");
  source_.hang_after = 3000;
  coordinator_.Send(With(Goal::kPrepare, argv_, package));
  ASSERT_TRUE(Eventually([&] { return source_.hanging == 1; }));
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return Peek().preparations.size() == 1 &&
           Peek().preparations[0].current == "fetch";
  }));
  // Others are not held up by it.
  Assignment other = Order(Goal::kPrepare, {"sh"});
  other.job = "other";
  coordinator_.Send(other);
  ASSERT_TRUE(coordinator_.Eventually([&] {
    return coordinator_.statuses[{"other", 1}].phase == GangPhase::kPrepared;
  }));
  coordinator_.Send(Order(Goal::kStop, {}));
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_TRUE(Eventually([&] { return source_.hanging == 0; }));
  EXPECT_TRUE(Eventually([&] {
    return RealFileSystem()->List(dir_ + "/packages")->empty() &&
           !RealFileSystem()->Exists(dir_ + "/tasks/job.g1/code");
  }));
  // The next generation fetches it anew.
  source_.hang_after = -1;
  Assignment next = Order(Goal::kPrepare, {"sh"}, JobKind::kProgram, 1, 2);
  next.spec->packages = {package};
  coordinator_.Send(next);
  EXPECT_TRUE(Reaches(GangPhase::kPrepared, 2)) << Reported(2).refusal.message;
}

TEST_F(AgentPackageTest, AGangOfTheSameNameWaitsForTheFirstOnesFetch) {
  std::promise<void> gate;
  config_.prepare.start_thread =
      [open = gate.get_future().share()](std::function<void()> run) {
        return std::thread([open, run = std::move(run)] {
          open.wait();
          run();
        });
      };
  StartAgain();
  coordinator_.Send(
      With(Goal::kPrepare, {"sh"},
           source_.Put(TarWriter().File("first", "x").Gzipped(), "first.tgz")));
  EXPECT_TRUE(Reaches(GangPhase::kPreparing));
  coordinator_.Send(Order(Goal::kStop, {}));
  EXPECT_TRUE(Reaches(GangPhase::kStopped));
  coordinator_.Send(Order(Goal::kForget, {}));
  coordinator_.Send(With(
      Goal::kPrepare, {"sh"},
      source_.Put(TarWriter().File("second", "x").Gzipped(), "second.tgz")));
  EXPECT_TRUE(Reaches(GangPhase::kPreparing));
  gate.set_value();
  ASSERT_TRUE(Reaches(GangPhase::kPrepared)) << Reported().refusal.message;
  EXPECT_THAT(
      RealFileSystem()->List(dir_ + "/tasks/job.g1/code/tree-0").value(),
      ElementsAre("second"));
}

TEST_F(AgentPackageTest, AHostWithoutThreadsRefusesForTheMoment) {
  config_.prepare.start_thread = [](std::function<void()>) -> std::thread {
    throw std::system_error(EAGAIN, std::generic_category());
  };
  StartAgain();
  coordinator_.Send(
      With(Goal::kPrepare, argv_, source_.Put(TarWriter().Gzipped(), "f.tgz")));
  ASSERT_TRUE(Reaches(GangPhase::kRefused));
  EXPECT_EQ(Reported().refusal.reason, Reason::kNoCapacity);
  EXPECT_THAT(Reported().refusal.message,
              HasSubstr("cannot start a preparation thread"));
}

TEST_F(AgentPackageTest, ADaemonThatLeavesEndsItsFetches) {
  source_.hang_after = 0;
  coordinator_.Send(
      With(Goal::kPrepare, argv_, source_.Put(TarWriter().Gzipped(), "f.tgz")));
  ASSERT_TRUE(Eventually([&] { return source_.hanging == 1; }));
  daemon_.reset();
  EXPECT_EQ(source_.hanging, 0);
  EXPECT_THAT(RealFileSystem()->List(dir_ + "/packages").value(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::agent
