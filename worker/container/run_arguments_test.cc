// The command line of a container.
#include "worker/container/run_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::worker::container {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

EngineSetup Podman() {
  EngineSetup setup;
  setup.program = "/usr/bin/podman";
  setup.init = "/opt/lockstep-shim";
  return setup;
}

EngineSetup Docker() {
  EngineSetup setup;
  setup.kind = EngineKind::kDocker;
  setup.program = "/usr/bin/docker";
  return setup;
}

ContainerPlan Plan() {
  ContainerPlan plan;
  plan.name = ContainerName("mnist", 2, 3, "abc");
  plan.image = "registry.example/trainer:1";
  return plan;
}

bool Follows(const std::vector<std::string>& args, const std::string& first,
             const std::string& second) {
  return std::adjacent_find(args.begin(), args.end(),
                            [&](const auto& a, const auto& b) {
                              return a == first && b == second;
                            }) != args.end();
}

// What comes after the options: from --entrypoint, or the image, on.
std::vector<std::string> Program(const std::vector<std::string>& args) {
  auto at = std::find(args.begin(), args.end(), "--entrypoint");
  if (at == args.end()) {
    at = std::find(args.begin(), args.end(), "registry.example/trainer:1");
  }
  return {at, args.end()};
}

TEST(RunArgumentsTest, CommandAndArgumentsReplaceEntrypointAndCmd) {
  const std::string image = "registry.example/trainer:1";
  for (const EngineSetup& setup : {Podman(), Docker()}) {
    ContainerPlan plan = Plan();
    EXPECT_THAT(Program(RunArguments(setup, plan)), ElementsAre(image));
    plan.args = {"task.py", "--steps", "3"};
    EXPECT_THAT(Program(RunArguments(setup, plan)),
                ElementsAre(image, "task.py", "--steps", "3"));
    plan.command = {"python3", "-u"};
    EXPECT_THAT(Program(RunArguments(setup, plan)),
                ElementsAre("--entrypoint", "python3", image, "-u", "task.py",
                            "--steps", "3"));
    plan.args.clear();
    EXPECT_THAT(Program(RunArguments(setup, plan)),
                ElementsAre("--entrypoint", "python3", image, "-u"));
  }
}

TEST(RunArgumentsTest, APodmanCommandThatLooksLikeAListIsOneWord) {
  ContainerPlan plan = Plan();
  plan.command = {"[x]"};
  EXPECT_TRUE(
      Follows(RunArguments(Podman(), plan), "--entrypoint", "[\"[x]\"]"));
  EXPECT_TRUE(Follows(RunArguments(Docker(), plan), "--entrypoint", "[x]"));
}

TEST(RunArgumentsTest, NameLabelsNetworkAndNoPull) {
  ContainerPlan plan = Plan();
  plan.labels = {{kContainerMarkLabel, "m1"}};
  const auto args = RunArguments(Podman(), plan);
  EXPECT_EQ(args[0], "/usr/bin/podman");
  EXPECT_EQ(args[1], "run");
  EXPECT_TRUE(Follows(args, "--name", "lockstep-mnist-g2-r3-abc"));
  EXPECT_TRUE(Follows(args, "--label", "lockstep.mark=m1"));
  EXPECT_THAT(args, Contains("--pull=never"));
  EXPECT_THAT(args, Contains("--network=host"));
  EXPECT_THAT(args, Contains("--security-opt=no-new-privileges"));
  EXPECT_THAT(args, Contains("--log-driver=passthrough"));
  EXPECT_THAT(RunArguments(Docker(), plan), Contains("--log-driver=none"));
}

TEST(RunArgumentsTest, OurInitReportsUnderPodmanOnly) {
  const auto podman = RunArguments(Podman(), Plan());
  EXPECT_TRUE(Follows(podman, "--init-path", "/opt/lockstep-shim"));
  EXPECT_THAT(podman, Contains("--preserve-fds=1"));
  const auto docker = RunArguments(Docker(), Plan());
  EXPECT_THAT(docker, Contains("--init"));
  EXPECT_THAT(docker, Not(Contains("--preserve-fds=1")));
}

TEST(RunArgumentsTest, LimitsWhereTheEngineCanAndSharedMemoryAlways) {
  ContainerPlan plan = Plan();
  plan.cpus = 1.5;
  plan.memory_bytes = 1 << 30;
  plan.shm_bytes = 1 << 29;
  EngineSetup setup = Podman();
  auto args = RunArguments(setup, plan);
  EXPECT_THAT(args, Contains("--cpus=1.500"));
  EXPECT_THAT(args, Contains("--memory=1073741824"));
  EXPECT_THAT(args, Contains("--memory-swap=1073741824"));
  EXPECT_THAT(args, Contains("--shm-size=536870912"));
  setup.can_limit = false;
  args = RunArguments(setup, plan);
  EXPECT_THAT(args, Not(Contains(HasSubstr("--cpus"))));
  EXPECT_THAT(args, Not(Contains(HasSubstr("--memory"))));
  EXPECT_THAT(args, Contains("--shm-size=536870912"));
}

TEST(RunArgumentsTest, GpusByCdiTheirNodesOrDockersOwnWay) {
  ContainerPlan plan = Plan();
  plan.gpus = {1, 3};
  EngineSetup setup = Podman();
  auto args = RunArguments(setup, plan);
  EXPECT_TRUE(Follows(args, "--device", "nvidia.com/gpu=1"));
  EXPECT_TRUE(Follows(args, "--device", "nvidia.com/gpu=3"));
  setup.gpu_access = GpuAccess::kDeviceNodes;
  args = RunArguments(setup, plan);
  EXPECT_TRUE(Follows(args, "--device", "/dev/nvidia1"));
  EXPECT_TRUE(Follows(args, "--device", "/dev/nvidia3"));
  EXPECT_TRUE(Follows(args, "--device", "/dev/nvidiactl"));
  EXPECT_TRUE(Follows(args, "--env", "NVIDIA_VISIBLE_DEVICES=void"));
  EXPECT_TRUE(
      Follows(RunArguments(Docker(), plan), "--gpus", "\"device=1,3\""));
  plan.gpus.clear();
  EXPECT_THAT(RunArguments(setup, plan), Not(Contains("--device")));
}

TEST(RunArgumentsTest, RunsAsTheTasksUserUnlessOptionsChooseAnother) {
  ContainerPlan plan = Plan();
  EXPECT_THAT(RunArguments(Podman(), plan), Not(Contains("--user")));
  plan.user = ContainerUser{1000, 100, {100, 44}};
  auto args = RunArguments(Podman(), plan);
  EXPECT_TRUE(Follows(args, "--user", "1000:100"));
  EXPECT_TRUE(Follows(args, "--group-add", "44"));
  EXPECT_FALSE(Follows(args, "--group-add", "100"));
  EXPECT_THAT(args, Contains("--cap-drop=all"));
  EngineSetup setup = Podman();
  setup.options = {"--userns=auto"};
  args = RunArguments(setup, plan);
  EXPECT_THAT(args, Not(Contains("--user")));
  EXPECT_THAT(args, Contains("--userns=auto"));
}

TEST(RunArgumentsTest, MountsAndDirectory) {
  ContainerPlan plan = Plan();
  plan.mounts = {{"/data/out", false}, {"/var/lib/p", true}};
  plan.mounts.push_back({"/link", false, "/real"});
  plan.working_directory = "/data/out";
  const auto args = RunArguments(Podman(), plan);
  EXPECT_TRUE(Follows(args, "--volume", "/data/out:/data/out:rw"));
  EXPECT_TRUE(Follows(args, "--volume", "/var/lib/p:/var/lib/p:ro"));
  EXPECT_TRUE(Follows(args, "--volume", "/real:/link:rw"));
  EXPECT_TRUE(Follows(args, "--workdir", "/data/out"));
}

TEST(RunArgumentsTest, MountsThatWereLookedAtAreNumberedForTheFirstProcess) {
  EXPECT_THAT(MountVariables({{"/a", false, "/real", 8, 42},
                              {"/b", false},
                              {"/c:d", true, "", 9, 7}}),
              ElementsAre(std::pair("LOCKSTEP_MOUNT_0", "8:42:/a"),
                          std::pair("LOCKSTEP_MOUNT_1", "9:7:/c:d")));
}

TEST(RunArgumentsTest, TheEnvironmentIsInItsFileSaveWhatDoesNotFit) {
  ContainerPlan plan = Plan();
  plan.environment = {{"KEY", "s3cret"},
                      {"LINES", "a\nb"},
                      {"QUOTED", "\"x\""},
                      {"SLASH", "x\\"},
                      {"EMPTY", ""},
                      {"JSON", "{\"a\": [1]}"},
                      {"LONG", std::string(70'000, 'x')}};
  plan.environment_file = "/run/env";
  EXPECT_EQ(EnvironmentFile(plan.environment),
            "EMPTY=\nJSON={\"a\": [1]}\nKEY=s3cret\n");
  const auto args = RunArguments(Podman(), plan);
  EXPECT_TRUE(Follows(args, "--env-file", "/run/env"));
  EXPECT_THAT(args, Not(Contains(HasSubstr("s3cret"))));
  EXPECT_TRUE(Follows(args, "--env", "LINES=a\nb"));
  EXPECT_TRUE(Follows(args, "--env", "QUOTED=\"x\""));
  EXPECT_TRUE(Follows(args, "--env", "SLASH=x\\"));
  EXPECT_TRUE(Follows(args, "--env", "LONG=" + std::string(70'000, 'x')));
}

TEST(RunArgumentsTest, OptionsOfTheSiteComeBeforeTheImage) {
  EngineSetup setup = Podman();
  setup.options = {"--runtime=runc"};
  ContainerPlan plan = Plan();
  plan.args = {"--runtime=mine"};
  const auto args = RunArguments(setup, plan);
  const auto of = [&](const std::string& arg) {
    return std::find(args.begin(), args.end(), arg) - args.begin();
  };
  EXPECT_LT(of("--runtime=runc"), of(plan.image));
  EXPECT_GT(of("--runtime=mine"), of(plan.image));
}

TEST(RunArgumentsTest, RefusesWhatNoEngineCanBeTold) {
  ContainerPlan plan = Plan();
  EXPECT_TRUE(CheckPlan(plan).ok());
  plan.mounts = {{"/a:b", false}};
  EXPECT_THAT(Message(CheckPlan(plan)), HasSubstr("/a:b"));
  plan = Plan();
  for (const char* image : {"--privileged", "docker-archive:/root/x.tar",
                            "dir:x", "oci-archive:/x.tar"}) {
    plan.image = image;
    EXPECT_FALSE(CheckPlan(plan).ok()) << image;
  }
}

TEST(RunArgumentsTest, ACommandInAContainerHasAKeeperWhereItCan) {
  ContainerCommand command;
  command.container = "lockstep-j-g1-r0-x";
  command.argv = {"bash", "-l"};
  EXPECT_THAT(ExecArguments(Podman(), command),
              ElementsAre("/usr/bin/podman", "exec", "--interactive",
                          "--preserve-fds=1", "lockstep-j-g1-r0-x",
                          "/run/podman-init", "--session", "--", "bash", "-l"));
  command.terminal = true;
  command.environment = {{"TERM", "xterm"}};
  EXPECT_THAT(
      ExecArguments(Docker(), command),
      ElementsAre("/usr/bin/docker", "exec", "--interactive", "--tty", "--env",
                  "TERM=xterm", "lockstep-j-g1-r0-x", "bash", "-l"));
}

}  // namespace
}  // namespace lockstep::worker::container
