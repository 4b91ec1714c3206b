// Containers for real, under a shim, by podman and by docker: skipped where one
// does not work (docker: where no daemon of it answers). Images are made here,
// of busybox; no registry is needed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "common/base/file.h"
#include "common/base/random.h"
#include "common/os/procfs.h"
#include "worker/container/command.h"
#include "worker/container/find_engine.h"
#include "worker/container/run_arguments.h"
#include "worker/shim/session_report.h"
#include "worker/shim/shim_fixture.h"

namespace lockstep::worker::container {
namespace {

using shim::Eventually;
using shim::ExitCode;
using shim::ReadTaskRecord;
using shim::ShimTest;

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using task::ExitKind;
using task::ExitRecord;
using task::ShimReply;
using task::ShimSpec;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kVariable[] = "LOCKSTEP_TEST_MARK";

// One engine and one image for all tests.
struct World {
  std::string dir;
  std::string mark = RandomHex(8);
  std::string image;
  std::unique_ptr<ContainerEngine> engine;
  std::string why;  // There is none.

  Status Engine(std::vector<std::string> args) {
    args.insert(args.begin(), engine->program());
    LOCKSTEP_ASSIGN_OR_RETURN(
        const CommandResult result,
        RunCommand({args, engine->Environment(), {}}, shim::In(60s)));
    if (result.ok()) return OkStatus();
    return Internal("{} {}: {}", args[0], args[1], result.last_error);
  }

  Status MakeImage() {
    std::string busybox = "/bin/busybox";
    if (access(busybox.c_str(), X_OK) != 0) busybox = "/usr/bin/busybox";
    const std::string bin = JoinPath(dir, "root/bin");
    LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(bin));
    LOCKSTEP_RETURN_IF_ERROR(
        RealFileSystem()->MakeDirs(JoinPath(dir, "root/tmp")));
    chmod(JoinPath(dir, "root/tmp").c_str(), 01777);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string program,
                              RealFileSystem()->Read(busybox, 64 << 20));
    LOCKSTEP_RETURN_IF_ERROR(
        RealFileSystem()->WriteAtomic(JoinPath(bin, "busybox"), program, 0755));
    for (const char* name :
         {"sh", "echo", "env", "id", "sleep", "cat", "df", "touch"}) {
      (void)!symlink("busybox", JoinPath(bin, name).c_str());
    }
    const std::string tar = JoinPath(dir, "root.tar");
    const auto packed = RunCommand(
        {{"/usr/bin/tar", "-C", JoinPath(dir, "root"), "-cf", tar, "."},
         {"PATH=/usr/bin:/bin"},
         {}},
        shim::In(30s));
    LOCKSTEP_RETURN_IF_ERROR(packed.status());
    image = "localhost/lockstep-test-" + mark + ":1";
    return Engine({"import", "--change", "ENTRYPOINT [\"/bin/echo\",\"entry\"]",
                   "--change", "CMD [\"cmd\"]", "--change",
                   "ENV FROM_IMAGE=yes", tar, image});
  }

  explicit World(const std::string& engine_name) {
    char name[] = "/tmp/lockstep-podman-XXXXXX";
    dir = mkdtemp(name);
    EngineOptions options;
    options.engine = engine_name;
    for (const std::string& text : CurrentEnvironment()) {
      const size_t at = text.find('=');
      options.environment[text.substr(0, at)] = text.substr(at + 1);
    }
    options.init = JoinPath(getenv("LOCKSTEP_BIN"), "lockstep-shim");
    options.directory = JoinPath(dir, "trial");
    options.want_limits = true;
    auto found = FindContainerEngine(options, shim::In(60s));
    if (!found.ok()) {
      why = Message(found.status());
      return;
    }
    engine = *std::move(found);
    if (const Status made = MakeImage(); !made.ok()) {
      why = Message(made);
      if (access("/bin/busybox", X_OK) != 0) why = "busybox-static is missing";
      engine.reset();
    }
  }
  ~World() {
    if (engine != nullptr) (void)Engine({"rmi", "--force", image});
    (void)RealFileSystem()->RemoveAll(dir);
  }
};

class PodmanContainerTest : public ShimTest,
                            public testing::WithParamInterface<const char*> {
 protected:
  static void TearDownTestSuite() {
    for (const auto& [name, world] : worlds_) delete world;
    worlds_.clear();
  }

  void SetUp() override {
    ShimTest::SetUp();
    World*& world = worlds_[GetParam()];
    if (world == nullptr) world = new World(GetParam());
    world_ = world;
    if (world_->engine == nullptr) GTEST_SKIP() << world_->why;
  }
  void TearDown() override {
    ShimTest::TearDown();
    if (world_->engine == nullptr) return;
    const auto left = engine().List(world_->mark, shim::In(30s));
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_THAT(*left, IsEmpty());
    for (const FoundContainer& container : *left) {
      EXPECT_TRUE(engine().Remove(container.name, shim::In(30s)).ok());
    }
    EXPECT_EQ(Processes(), 0);
  }

  ContainerEngine& engine() { return *world_->engine; }
  ContainerPlan Plan() {
    ContainerPlan plan;
    plan.name = ContainerName("job", 1, 0, RandomHex(4));
    plan.labels = {{kContainerMarkLabel, world_->mark}};
    plan.image = world_->image;
    plan.environment = {{kVariable, world_->mark}};
    return plan;
  }
  ContainerPlan Shell(const std::string& script) {
    ContainerPlan plan = Plan();
    plan.command = {"/bin/sh", "-c"};
    plan.args = {script};
    return plan;
  }
  // As the worker daemon makes it.
  ShimSpec SpecOf(ContainerPlan plan) {
    plan.environment_file = Path("env");
    EXPECT_TRUE(RealFileSystem()
                    ->WriteAtomic(plan.environment_file,
                                  EnvironmentFile(plan.environment), 0600)
                    .ok());
    ShimSpec spec = Spec("");
    spec.argv = engine().RunArguments(plan);
    spec.env = engine().Environment();
    spec.cwd = "/";
    spec.container.name = plan.name;
    spec.container.signal = engine().SignalArguments(plan.name);
    spec.container.inspect = engine().InspectArguments(plan.name);
    spec.container.remove = engine().RemoveArguments(plan.name);
    spec.container.reports = engine().reports();
    return spec;
  }
  ExitRecord Run(const ContainerPlan& plan) {
    ExitRecord record = RunToEnd(SpecOf(plan));
    EXPECT_EQ(record.tree_left, 0u);
    return record;
  }
  // The daemon's ends of a session.
  struct SessionEnds {
    Fd in;
    Fd out;
    Fd control;

    // The command's ends.
    std::vector<Fd> Make() {
      int fds[2];
      std::vector<Fd> theirs(4);
      EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
      theirs[0].Reset(fds[0]);
      in.Reset(fds[1]);
      EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
      out.Reset(fds[0]);
      theirs[1].Reset(fds[1]);
      theirs[2].Reset(fcntl(fds[1], F_DUPFD_CLOEXEC, 0));
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
      control.Reset(fds[0]);
      theirs[3].Reset(fds[1]);
      return theirs;
    }
    // To its end.
    std::string Output() const {
      std::string text;
      char buffer[4096];
      ssize_t n = 0;
      while ((n = read(out.get(), buffer, sizeof(buffer))) > 0) {
        text.append(buffer, static_cast<size_t>(n));
      }
      return text;
    }
    bool Next(shim::SessionReport* report) const {
      return recv(control.get(), report, sizeof(*report), 0) ==
             static_cast<ssize_t>(sizeof(*report));
    }
  };

  // Of containers of this run, and their keepers.
  static int Processes() {
    int count = 0;
    for (const ProcessStat& process : ReadAllProcesses()) {
      const std::string proc = fmt::format("/proc/{}/", process.pid);
      const std::string env =
          ReadProcFile(proc + "environ").value_or(std::string());
      const std::string args =
          ReadProcFile(proc + "cmdline").value_or(std::string());
      const bool keeper = args.find("conmon") != std::string::npos &&
                          args.find("lockstep-job-g1-r0") != std::string::npos;
      count += keeper || env.find(world_->mark) != std::string::npos;
    }
    return count;
  }

  static std::map<std::string, World*> worlds_;
  static World* world_;  // Of this test.
};

std::map<std::string, World*> PodmanContainerTest::worlds_;
World* PodmanContainerTest::world_ = nullptr;

INSTANTIATE_TEST_SUITE_P(Engines, PodmanContainerTest,
                         testing::Values("podman", "docker"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

TEST_P(PodmanContainerTest, RunsWhatTheTableSays) {
  ContainerPlan plan = Plan();
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  EXPECT_THAT(Texts(), ElementsAre("entry cmd"));
  plan.name += "b";
  plan.args = {"a", "b"};
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  EXPECT_THAT(Texts(), ElementsAre("entry a b"));
  plan.name += "c";
  plan.command = {"/bin/echo", "given"};
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  EXPECT_THAT(Texts(), ElementsAre("given a b"));
  plan.name += "d";
  plan.args.clear();
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  EXPECT_THAT(Texts(), ElementsAre("given"));
}

TEST_P(PodmanContainerTest, TheProgramSeesItsEnvironmentAndNothingOfTheHosts) {
  setenv("LOCKSTEP_TEST_HOST", "secret", 1);
  ContainerPlan plan = Plan();
  plan.command = {"/bin/env"};
  plan.environment["TF_CONFIG"] = R"({"task": {"type": "chief", "index": 0}})";
  plan.environment["TWO_LINES"] = "a\nb";
  plan.environment["EMPTY"] = "";
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  EXPECT_THAT(Texts(),
              Contains(R"(TF_CONFIG={"task": {"type": "chief", "index": 0}})"));
  EXPECT_THAT(Texts(), Contains("TWO_LINES=a"));
  EXPECT_THAT(Texts(), Contains("EMPTY="));
  EXPECT_THAT(Texts(), Contains("FROM_IMAGE=yes"));
  EXPECT_THAT(Texts(), testing::Not(Contains(HasSubstr("secret"))));
}

TEST_P(PodmanContainerTest, CodesAndSignalsOfTheProgramAreTold) {
  const ExitRecord r = Run(Shell("echo out; echo err >&2; exit 3"));
  EXPECT_EQ(r.kind, ExitKind::kExited);
  EXPECT_EQ(ExitCode(r), 3);
  EXPECT_THAT(Texts(), testing::UnorderedElementsAre("out", "err"));
  const ExitRecord killed = Run(Shell("kill -SEGV $$"));
  EXPECT_EQ(killed.kind, ExitKind::kSignaled);
  EXPECT_EQ(killed.wait_status, SIGSEGV);
}

TEST_P(PodmanContainerTest, SigtermReachesTheProgram) {
  Start(
      SpecOf(Shell("trap 'echo told; exit 7' TERM; echo ready; "
                   "while :; do sleep 0.05; done")));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(
      WaitForPhase(client.get(), ShimReply::Phase::kRunning, shim::In(20s))
          .ok());
  ASSERT_TRUE(Eventually([&] { return !Log().empty(); }));
  ASSERT_TRUE(client->KillTree(20s, shim::In(5s)).ok());
  const auto end =
      WaitForPhase(client.get(), ShimReply::Phase::kExited, shim::In(60s));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(ExitCode(end->exit_record), 7);
  EXPECT_THAT(Texts(), ElementsAre("ready", "told"));
  client.reset();
  EXPECT_EQ(ShimCode(), 0);
}

TEST_P(PodmanContainerTest, AProgramWithoutAHandlerEndsBySigterm) {
  Start(SpecOf(Shell("echo ready; sleep 100 & wait; echo never")));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(Eventually([&] { return !Log().empty(); }));
  ASSERT_TRUE(client->KillTree(20s, shim::In(5s)).ok());
  const auto end =
      WaitForPhase(client.get(), ShimReply::Phase::kExited, shim::In(60s));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(ExitCode(end->exit_record), 128 + SIGTERM);
  client.reset();
  EXPECT_EQ(ShimCode(), 0);
}

TEST_P(PodmanContainerTest, AProgramThatIgnoresSigtermIsKilled) {
  Start(SpecOf(Shell("trap '' TERM; echo ready; while :; do sleep 1; done")));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(Eventually([&] { return !Log().empty(); }));
  ASSERT_TRUE(client->KillTree(300ms, shim::In(5s)).ok());
  const auto end =
      WaitForPhase(client.get(), ShimReply::Phase::kExited, shim::In(60s));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(ExitCode(end->exit_record), 128 + SIGKILL);
  client.reset();
  EXPECT_EQ(ShimCode(), 0);
}

TEST_P(PodmanContainerTest, AKillBeforeTheContainerIsThereLeavesNone) {
  for (int i = 0; i < 3; ++i) {
    const size_t index = Start(SpecOf(Shell("sleep 100")));
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    usleep(static_cast<useconds_t>(30'000 * i));  // Another moment each time.
    ASSERT_TRUE(client->KillTree(0s, shim::In(5s)).ok());
    ASSERT_TRUE(
        WaitForPhase(client.get(), ShimReply::Phase::kExited, shim::In(30s))
            .ok());
    client.reset();
    EXPECT_EQ(ShimCode(index), 0);
  }
}

TEST_P(PodmanContainerTest, OutOfMemoryIsCertain) {
  if (!engine().can_limit()) GTEST_SKIP() << "no limits can be set here";
  ContainerPlan plan = Shell("a=x; while :; do a=$a$a; done");
  plan.memory_bytes = 24 << 20;
  const ExitRecord r = Run(plan);
  EXPECT_EQ(r.kind, ExitKind::kSignaled);
  EXPECT_EQ(r.wait_status, SIGKILL);
  EXPECT_GE(r.oom_kills, 1u);
}

TEST_P(PodmanContainerTest, AnImageThatIsNotThereIsRefused) {
  const std::string image = "localhost/lockstep-no-such-image:1";
  const Status status =
      engine().EnsureImage({image, "", "", ""}, shim::In(30s), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(image));
  EXPECT_TRUE(engine()
                  .EnsureImage({world_->image, "", "", ""}, shim::In(30s), {})
                  .ok());
  ContainerPlan plan = Plan();
  plan.image = image;
  const ExitRecord r = Run(plan);
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_THAT(r.message, HasSubstr(image));
}

TEST_P(PodmanContainerTest, ASettledImageRunsByItsIdAfterItsTagWasMoved) {
  const std::string name = "localhost/lockstep-moved-" + world_->mark + ":1";
  ASSERT_TRUE(world_->Engine({"tag", world_->image, name}).ok());
  const auto first =
      engine().EnsureImage({name, "", "", ""}, shim::In(30s), {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->content.id.empty());
  // Made here: no registry has it.
  EXPECT_EQ(first->content.digest, "");
  ASSERT_TRUE(world_
                  ->Engine({"import", "--change",
                            "ENTRYPOINT [\"/bin/echo\",\"other\"]",
                            JoinPath(world_->dir, "root.tar"), name})
                  .ok());
  const auto other =
      engine().EnsureImage({name, "", "", ""}, shim::In(30s), {});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->content.id, first->content.id);
  const auto again = engine().EnsureImage(first->content, shim::In(30s), {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->content.id, first->content.id);
  ContainerPlan plan = Plan();
  plan.image = again->content.id;
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  EXPECT_THAT(Texts(), ElementsAre("entry cmd"));
  ImageContent gone = first->content;
  gone.id.back() = gone.id.back() == '0' ? '1' : '0';
  gone.node = "node-b";
  const Status refused = engine().EnsureImage(gone, shim::In(30s), {}).status();
  EXPECT_THAT(Message(refused), HasSubstr(gone.id));
  EXPECT_THAT(Message(refused), HasSubstr(other->content.id));
  ASSERT_TRUE(world_->Engine({"rmi", "--force", name}).ok());
}

TEST_P(PodmanContainerTest, AProgramThatIsNotInTheImageIsNamed) {
  ContainerPlan plan = Plan();
  plan.command = {"no-such-program"};
  const ExitRecord r = Run(plan);
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_EQ(ExitCode(r), 127);
  EXPECT_EQ(r.message, "program no-such-program is not in the image");
}

TEST_P(PodmanContainerTest, HasItsDirectoriesAndItsSharedMemory) {
  ASSERT_TRUE(RealFileSystem()->MakeDirs(Path("out")).ok());
  ContainerPlan plan = Shell("echo made > made; echo $PWD; df -m /dev/shm");
  plan.mounts = {{Path("out"), false}};
  plan.working_directory = Path("out");
  plan.shm_bytes = 37 << 20;
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  EXPECT_EQ(RealFileSystem()->Read(Path("out/made"), 16).value_or(""),
            "made\n");
  EXPECT_THAT(Texts(), Contains(Path("out")));
  EXPECT_THAT(Texts(), Contains(HasSubstr(" 37 ")));
}

TEST_P(PodmanContainerTest, KnowsAMountThatIsAnother) {
  if (!engine().reports()) GTEST_SKIP() << "its first process is not ours";
  ASSERT_TRUE(RealFileSystem()->MakeDirs(Path("out")).ok());
  struct stat info {};
  ASSERT_EQ(stat(Path("out").c_str(), &info), 0);
  ContainerPlan plan = Shell("echo made > made");
  plan.mounts = {{Path("out"), false}};
  plan.working_directory = Path("out");
  plan.environment["LOCKSTEP_MOUNT_0"] =
      fmt::format("{}:{}:{}", info.st_dev, info.st_ino, Path("out"));
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  // As if somebody had put another in its place.
  ASSERT_EQ(rename(Path("out").c_str(), Path("was").c_str()), 0);
  ASSERT_TRUE(RealFileSystem()->MakeDirs(Path("out")).ok());
  plan.name += "b";
  const ExitRecord r = Run(plan);
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_THAT(r.message, HasSubstr(Path("out") + " was replaced"));
  EXPECT_FALSE(RealFileSystem()->Exists(Path("out/made")));
}

TEST_P(PodmanContainerTest, RunsAsTheTasksUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_TRUE(RealFileSystem()->MakeDirs(Path("out")).ok());
  ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
  ASSERT_EQ(chown(Path("out").c_str(), 12345, 12345), 0);
  ContainerPlan plan = Shell("id -u; id -g; touch " + Path("out/mine"));
  plan.mounts = {{Path("out"), false}};
  plan.user = ContainerUser{12345, 12345, {}};
  EXPECT_EQ(ExitCode(Run(plan)), 0);
  EXPECT_THAT(Texts(), ElementsAre("12345", "12345"));
  struct stat info {};
  ASSERT_EQ(stat(Path("out/mine").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12345u);
}

TEST_P(PodmanContainerTest, UsersRunCommandsInTheContainer) {
  using Phase = ShimReply::Phase;
  if (!engine().reports()) GTEST_SKIP() << "needs our init in the container";
  ContainerPlan plan = Shell("sleep 600");
  plan.user = ContainerUser{1234, 1234, {}};
  plan.environment["OF_RANK"] = "yes";
  Start(SpecOf(plan));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(
      shim::WaitForPhase(client.get(), Phase::kRunning, shim::In(60s)).ok());
  const auto open = [&](const std::string& script, SessionEnds* ends) {
    ContainerCommand command;
    command.container = plan.name;
    command.argv = {"sh", "-c", script};
    command.environment = {{"TERM", "vt100"}};
    task::ShimRequest request;
    request.argv = engine().ExecArguments(command);
    request.in_container = true;
    std::vector<Fd> theirs = ends->Make();
    std::vector<int> fds;
    for (const Fd& fd : theirs) fds.push_back(fd.get());
    ASSERT_TRUE(client->StartSession(request, fds, shim::In(5s)).ok());
  };
  SessionEnds first;
  open("read x; echo $x $OF_RANK $TERM; id -u; exit 7", &first);
  ASSERT_EQ(write(first.in.get(), "hello\n", 6), 6);
  EXPECT_EQ(first.Output(), "hello yes vt100\n1234\n");
  shim::SessionReport report;
  ASSERT_TRUE(first.Next(&report));
  EXPECT_EQ(report.kind, shim::SessionReport::Kind::kStarted);
  ASSERT_TRUE(first.Next(&report));
  EXPECT_EQ(report.kind, shim::SessionReport::Kind::kEnded);
  EXPECT_EQ(WEXITSTATUS(report.value), 7);

  // Nothing stays in the container when the daemon is gone.
  const int before = Processes();
  SessionEnds second;
  open("trap '' HUP; echo ready; while :; do sleep 0.1; done", &second);
  char byte = 0;
  ASSERT_EQ(read(second.out.get(), &byte, 1), 1);
  EXPECT_GT(Processes(), before);
  second.control.Reset();
  EXPECT_TRUE(shim::Eventually([&] { return Processes() == before; }));
  EXPECT_EQ(client->State(shim::In(5s))->phase, Phase::kRunning);
  ASSERT_TRUE(client->KillTree(Duration{}, shim::In(5s)).ok());
  EXPECT_TRUE(
      shim::WaitForPhase(client.get(), Phase::kExited, shim::In(60s)).ok());
}

TEST_P(PodmanContainerTest, AContainerWhoseShimWasKilledIsFoundAndRemoved) {
  ContainerPlan plan = Shell("sleep 100");
  plan.labels[kContainerDaemonLabel] = "7";
  const size_t index = Start(SpecOf(plan));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(
      WaitForPhase(client.get(), ShimReply::Phase::kRunning, shim::In(20s))
          .ok());
  // Where nobody reports, that is the client: its container comes soon.
  ASSERT_TRUE(Eventually([&] {
    const auto there = engine().List(world_->mark, shim::In(30s));
    return there.ok() && !there->empty();
  }));
  const auto record = ReadTaskRecord(Path("task"));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->container, plan.name);
  ASSERT_TRUE(SendSignal(shims_[index], SIGKILL).ok());
  (void)ShimCode(index);
  const auto found = engine().List(world_->mark, shim::In(30s));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, ElementsAre(FoundContainer{plan.name, "7"}));
  EXPECT_TRUE(engine().Remove(plan.name, shim::In(30s)).ok());
  EXPECT_TRUE(engine().Remove(plan.name, shim::In(30s)).ok());
  EXPECT_TRUE(Eventually([] { return Processes() == 0; }));
}

TEST_P(PodmanContainerTest, TenRoundsLeaveNothing) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(ExitCode(Run(Shell("sleep 100 & exit 0"))), 0);
    EXPECT_EQ(Processes(), 0);
  }
}

}  // namespace
}  // namespace lockstep::worker::container
