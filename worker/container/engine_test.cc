// The engine by its command line, with a script in its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "common/base/file.h"
#include "worker/container/cli_engine.h"
#include "worker/container/command.h"
#include "worker/container/find_engine.h"
#include "worker/container/session_io.h"
#include "worker/task/engine_words.h"

namespace lockstep::worker::container {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

MonoTime In(Duration d) { return MonotonicNow() + d; }

const std::string kA(64, 'a');
const std::string kB(64, 'b');
const std::string kD(64, 'd');

// Of a script: every image is here, as this.
std::string Has(const std::string& id, const std::string& digests = "") {
  return "[ \"$1\" = image ] && { echo '" + id + digests + "'; exit; }\n";
}

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-engine-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    Write("init", "the first process\n");
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  std::string Path(const std::string& name) { return JoinPath(dir_, name); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    chmod(Path(name).c_str(), 0755);
  }
  // A program that notes how it was called; $* holds the arguments.
  void Script(const std::string& name, const std::string& body) {
    Write(name, "#!/bin/sh\necho \"$*\" >> " + Path("calls") + "\n" + body);
  }
  std::vector<std::string> Calls() {
    std::vector<std::string> calls;
    std::ifstream file(Path("calls"));
    for (std::string line; std::getline(file, line);) calls.push_back(line);
    return calls;
  }
  EngineOptions Options() {
    EngineOptions options;
    options.environment = {{"PATH", dir_ + ":/usr/bin:/bin"},
                           {"SECRET", "of the daemon"}};
    options.init = Path("init");
    options.directory = Path("trial");
    return options;
  }
  static ImageContent Any(const std::string& image) {
    return {image, "", "", ""};
  }
  std::unique_ptr<ContainerEngine> Engine(const std::string& body,
                                          ImageTimes times = {}) {
    Script("podman", body);
    EngineSetup setup;
    setup.program = Path("podman");
    return std::make_unique<CliEngine>(setup, "podman 1.2.3",
                                       std::vector<std::string>{}, times);
  }

  std::string dir_;
};

TEST_F(EngineTest, CommandsGiveOutputCodeAndLastError) {
  const auto result = RunCommand(
      {{"/bin/sh", "-c", "echo out; echo one >&2; echo two >&2; exit 3"},
       {},
       {}},
      In(10s));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->code, 3);
  EXPECT_EQ(result->output, "out\n");
  EXPECT_EQ(result->last_error, "two");
}

TEST_F(EngineTest, ACommandThatHangsIsEndedAtItsDeadline) {
  const auto result =
      RunCommand({{"/bin/sh", "-c", "trap '' TERM; echo at work >&2; sleep 60"},
                  {"PATH=/usr/bin:/bin"},
                  {}},
                 In(200ms));
  EXPECT_EQ(result.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(result.status()), HasSubstr("at work"));
}

TEST_F(EngineTest, ACommandIsEndedWhenNobodyWantsItAnyMore) {
  Command command{
      {"/bin/sh", "-c", "echo x >&2; sleep 60"}, {"PATH=/usr/bin:/bin"}, {}};
  command.on_line = [](const std::string&) { return false; };
  EXPECT_EQ(RunCommand(command, In(30s)).status().code(),
            StatusCode::kCancelled);
}

TEST_F(EngineTest, ACommandThatNeitherSaysNorMovesAnythingIsEnded) {
  Command command{
      {"/bin/sh", "-c", "echo x >&2; sleep 60"}, {"PATH=/usr/bin:/bin"}, {}};
  command.idle_limit = 200ms;
  const auto result = RunCommand(command, In(30s));
  EXPECT_EQ(result.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(result.status()), HasSubstr("made no progress for"));
}

TEST_F(EngineTest, ACommandThatReadsInSilenceIsAtWork) {
  Command command{{"/bin/sh", "-c",
                   "i=0; while [ $i -lt 200 ]; do read x </proc/version; "
                   "sleep 0.02; i=$((i+1)); done"},
                  {"PATH=/usr/bin:/bin"},
                  {}};
  command.idle_limit = 3s;
  const auto result = RunCommand(command, In(30s));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->code, 0);
}

TEST_F(EngineTest, BytesMovedAreOfAWholeSession) {
  EXPECT_EQ(ParseBytesMoved("rchar: 12\nwchar: 30\nsyscr: 1\n"), 42u);
  EXPECT_EQ(ParseBytesMoved("rchar: x\nwchar: 30\n"), std::nullopt);
  EXPECT_EQ(ParseBytesMoved(""), std::nullopt);
  EXPECT_TRUE(BytesMoved(getsid(0)).has_value());
}

TEST_F(EngineTest, AnImageThatIsHereIsNotFetched) {
  const auto engine = Engine(Has(kA));
  EXPECT_TRUE(engine->EnsureImage(Any("reg.example/x:1"), In(10s), {}).ok());
  EXPECT_THAT(Calls(), Not(Contains(HasSubstr("pull"))));
}

TEST_F(EngineTest, AnImageThatIsMissingIsFetchedAndProgressIsTold) {
  const auto engine =
      Engine("[ \"$1\" = image ] && { [ -e " + Path("pulled") +
             " ] || exit 1; }\n" + Has(kA) + "touch " + Path("pulled") +
             "\necho 'Copying blob sha256:1' >&2\n");
  std::string line;
  EXPECT_TRUE(engine
                  ->EnsureImage(Any("reg.example/x:1"), In(10s),
                                [&](const std::string& text) {
                                  line = text;
                                  return true;
                                })
                  .ok());
  EXPECT_THAT(Calls(), Contains("pull reg.example/x:1"));
  EXPECT_EQ(line, "Copying blob sha256:1");
}

TEST_F(EngineTest, LatestIsLookedForAgainAndTheOldOneServesWithoutARegistry) {
  const auto engine =
      Engine(Has(kA) + "echo 'no route to host' >&2\nexit 125\n");
  EXPECT_TRUE(engine->EnsureImage(Any("reg.example/x"), In(10s), {}).ok());
  EXPECT_THAT(Calls(), Contains("pull reg.example/x"));
}

TEST_F(EngineTest, TheOldOneServesSoonWhereTheRegistryHangs) {
  const auto engine = Engine(Has(kA) + "exec sleep 60\n", {.refresh = 200ms});
  const MonoTime begun = In(0s);
  EXPECT_TRUE(engine->EnsureImage(Any("reg.example/x"), In(40s), {}).ok());
  EXPECT_LT(In(0s) - begun, 20s);
}

TEST_F(EngineTest, AFetchThatStandsStillIsGivenUp) {
  const auto engine = Engine(
      "[ \"$1\" = image ] && exit 1\necho 'Copying blob 1' >&2\n"
      "exec sleep 60\n",
      {.idle = 300ms});
  const Status status =
      engine->EnsureImage(Any("reg.example/x"), In(40s), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(status), HasSubstr("made no progress for"));
  EXPECT_THAT(Message(status), HasSubstr("Copying blob 1"));
}

TEST_F(EngineTest, LookingForAnImageHasAnEnd) {
  const std::string hangs = "exec sleep 60\n";
  const Status late = Engine(hangs, {.look = 200ms})
                          ->EnsureImage(Any("reg.example/x"), In(40s), {})
                          .status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  const Status ended =
      Engine(hangs)
          ->EnsureImage(Any("reg.example/x"), In(40s),
                        [](const std::string&) { return false; })
          .status();
  EXPECT_EQ(ended.code(), StatusCode::kCancelled);
}

TEST_F(EngineTest, AnImageThatCannotBeHadIsNamedWithTheEnginesLastLine) {
  const auto engine = Engine(
      "[ \"$1\" = image ] && exit 1\n"
      "echo 'Trying to pull' >&2\n"
      "echo 'Error: reading manifest: manifest unknown' >&2\nexit 125\n");
  const Status status =
      engine->EnsureImage(Any("reg.example/x:9"), In(10s), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status),
            "cannot fetch the image reg.example/x:9: reading manifest: "
            "manifest unknown");
  EXPECT_EQ(engine->EnsureImage(Any("--all"), In(10s), {}).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_THAT(Calls(), Not(Contains(HasSubstr("--all"))));
}

TEST_F(EngineTest, AnImageOfThisHostIsNeverFetched) {
  const auto engine = Engine("exit 1\n");
  const Status status =
      engine->EnsureImage(Any("localhost/x:1"), In(10s), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Calls(), Not(Contains(HasSubstr("pull"))));
}

TEST_F(EngineTest, WhatAnImageIsComesFromItsEngine) {
  const auto here = Engine(Has(kA, " reg.example/x@sha256:" + kD))
                        ->EnsureImage(Any("reg.example/x:1"), In(10s), {});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(here->content, (ImageContent{"reg.example/x:1", "sha256:" + kA,
                                         "sha256:" + kD, ""}));
  EXPECT_FALSE(here->fetched);
  EXPECT_EQ(ParseLocalImage("sha256:" + kA + "\n"),
            (LocalImage{"sha256:" + kA, {}}));
  EXPECT_EQ(ParseLocalImage("Error: none"), std::nullopt);
  EXPECT_EQ(ParseLocalImage(""), std::nullopt);
  EXPECT_EQ(RepositoryOf("reg.example:5000/a/b:1"), "reg.example:5000/a/b");
  EXPECT_EQ(RepositoryOf("reg.example:5000/a"), "reg.example:5000/a");
  EXPECT_EQ(RepositoryOf("a@sha256:1"), "a");
  const LocalImage hub{"x", {"docker.io/library/debian@sha256:" + kD}};
  EXPECT_EQ(RegistryDigest("debian:12", hub), "sha256:" + kD);
  EXPECT_EQ(RegistryDigest("other:12", hub), "");
  // Podman gives a digest to what it has made itself.
  EXPECT_EQ(
      RegistryDigest("localhost/x:1", {"x", {"localhost/x@sha256:" + kD}}), "");
  EXPECT_EQ(RegistryDigest("x:1", {"x", {"localhost/x@sha256:" + kD}}), "");
}

TEST_F(EngineTest, ASettledImageThatIsHereIsNotLookedForAtItsRegistry) {
  // Not even that which may be newer.
  const auto engine = Engine(Has(kA));
  const auto here = engine->EnsureImage(
      {"reg.example/x", "sha256:" + kA, "sha256:" + kD, "b"}, In(10s), {});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_THAT(Calls(), Not(Contains(HasSubstr("pull"))));
}

TEST_F(EngineTest, ASettledImageIsFoundByItsIdWhenItsTagWasMoved) {
  const auto engine =
      Engine("case \"$*\" in *\" sha256:" + kA + "\") echo " + kA +
             ";; *inspect*) echo " + kB + ";; *) exit 1;; esac\n");
  const auto here = engine->EnsureImage(
      {"localhost/x:1", "sha256:" + kA, "", "b"}, In(10s), {});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(here->content.id, "sha256:" + kA);
}

TEST_F(EngineTest, ASettledImageThatIsNotHereIsFetchedByItsDigest) {
  const auto engine = Engine(
      "case \"$*\" in pull*) touch " + Path("pulled") +
      ";; *inspect*reg.example/x@sha256:" + kD + ") [ -e " + Path("pulled") +
      " ] && echo " + kA + " reg.example/x@sha256:" + kD +
      ";; *inspect*x:1) echo " + kB + ";; *) exit 1;; esac\n");
  const auto here = engine->EnsureImage(
      {"reg.example/x:1", "sha256:" + kA, "sha256:" + kD, "b"}, In(10s), {});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_TRUE(here->fetched);
  EXPECT_EQ(here->content.id, "sha256:" + kA);
  EXPECT_THAT(Calls(), Contains("pull reg.example/x@sha256:" + kD));
}

TEST_F(EngineTest, ASettledImageThatCannotBeHadIsNamedWithBothDigests) {
  const std::string script =
      "case \"$*\" in *inspect*x:1) echo " + kB +
      ";; *) echo 'Error: manifest unknown' >&2; exit 1;; esac\n";
  const Status local =
      Engine(script)
          ->EnsureImage({"localhost/x:1", "sha256:" + kA, "", "node-b"},
                        In(10s), {})
          .status();
  EXPECT_EQ(local.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(local), "the image localhost/x:1 is sha256:" + kB +
                                " on this node, but the job uses sha256:" + kA +
                                ", as resolved by node-b; no registry has that "
                                "image: copy it to this node");
  const Status pulled = Engine(script)
                            ->EnsureImage({"reg.example/x:1", "sha256:" + kA,
                                           "sha256:" + kD, "node-b"},
                                          In(10s), {})
                            .status();
  EXPECT_THAT(Message(pulled), HasSubstr("sha256:" + kB));
  EXPECT_THAT(Message(pulled), HasSubstr("sha256:" + kD));
  EXPECT_THAT(Message(pulled), HasSubstr("manifest unknown"));
}

TEST_F(EngineTest, FindsLeftoversByTheirLabelAndRemovesThem) {
  const auto engine = Engine(
      "[ \"$1\" = ps ] && printf 'one 4\\ntwo \\n'\n"
      "[ \"$1\" = ps ] || { echo 'Error: busy' >&2; exit 2; }\n");
  const auto found = engine->List("m1", In(10s));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, ElementsAre(FoundContainer{"one", "4"},
                                  FoundContainer{"two", ""}));
  EXPECT_THAT(Calls()[0], HasSubstr("label=lockstep.mark=m1"));
  EXPECT_EQ(Message(engine->Remove("one", In(10s))),
            "cannot remove the container one: busy");
}

TEST_F(EngineTest, AnotherEnginesContainerIsGoneOnlyIfItsEngineSaysSo) {
  Script("docker",
         "case \"$*\" in *gone) echo 'Error response from daemon: No such "
         "container: gone' >&2; exit 1;; *held) echo 'Error: device is busy' "
         ">&2; exit 1;; esac\n");
  EXPECT_TRUE(RemoveContainerBy(Path("docker"), {}, "one", In(10s)).ok());
  EXPECT_TRUE(RemoveContainerBy(Path("docker"), {}, "gone", In(10s)).ok());
  EXPECT_EQ(Message(RemoveContainerBy(Path("docker"), {}, "held", In(10s))),
            "cannot remove the container held: device is busy");
  EXPECT_THAT(Calls(), Contains("rm --force --volumes one"));
}

TEST_F(EngineTest, FindsPodmanAndTriesItOut) {
  Script("podman",
         "[ \"$1\" = --version ] && { echo podman version 4.3.1; exit; }\n"
         "[ \"$1\" = run ] && exit 0\nexit 1\n");
  const auto engine = FindContainerEngine(Options(), In(20s));
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->version(), "podman 4.3.1");
  EXPECT_EQ((*engine)->program(), Path("podman"));
  EXPECT_TRUE((*engine)->reports());
  EXPECT_FALSE((*engine)->can_limit());
  EXPECT_THAT(Calls(), Contains(HasSubstr("--rootfs " + Path("trial") +
                                          " /init --version")));
  EXPECT_TRUE(RealFileSystem()->Exists(Path("trial/init")));
}

TEST_F(EngineTest, KeepsWhatMadeItWork) {
  // As where limits cannot be raised and cgroups are of version 1.
  Script("podman",
         "[ \"$1\" = --version ] && { echo podman version 4.3.1; exit; }\n"
         "case \"$*\" in rm*) exit 0;; *--cpus*) ;; *runc*--ulimit*) exit 0;; "
         "esac\n"
         "echo 'Error: crun: setrlimit' >&2; exit 126\n");
  Write("runc", "#!/bin/sh\n");
  EngineOptions options = Options();
  options.want_limits = true;
  const auto engine = FindContainerEngine(options, In(60s));
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_FALSE((*engine)->can_limit());
  ContainerPlan plan;
  plan.image = "x";
  plan.cpus = 2;
  EXPECT_THAT((*engine)->RunArguments(plan), Contains("--runtime=runc"));
  EXPECT_THAT((*engine)->RunArguments(plan),
              Contains(HasSubstr("--ulimit=nofile=")));
}

TEST_F(EngineTest, LimitsThatAreIgnoredAreNone) {
  Script("podman",
         "[ \"$1\" = --version ] && { echo podman version 4.3.1; exit; }\n"
         "case \"$*\" in *--limited) exit 9;; esac\nexit 0\n");
  EngineOptions options = Options();
  options.want_limits = true;
  const auto engine = FindContainerEngine(options, In(20s));
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_FALSE((*engine)->can_limit());
  EXPECT_EQ(Calls().size(), 3u);  // The version, with limits, without.
}

TEST_F(EngineTest, SaysWhyPodmanDoesNotWork) {
  Script("podman",
         "[ \"$1\" = --version ] && { echo podman version 4.3.1; exit; }\n"
         "echo 'Error: no subuid ranges found' >&2; exit 125\n");
  EngineOptions options = Options();
  options.engine = "podman";
  const auto engine = FindContainerEngine(options, In(60s));
  EXPECT_EQ(Message(engine.status()),
            Path("podman") + " does not work here: no subuid ranges found");
}

TEST_F(EngineTest, DockerNeedsItsDaemon) {
  Script("docker",
         "[ \"$1\" = --version ] && { echo 'Docker version 24.0.7, build 1'; "
         "exit; }\n[ -e " +
             Path("up") + " ] && { echo 24.0.7; exit; }\n" +
             "echo 'Cannot connect to the Docker daemon' >&2; exit 1\n");
  EngineOptions options = Options();
  options.engine = "docker";
  auto engine = FindContainerEngine(options, In(20s));
  EXPECT_THAT(Message(engine.status()), HasSubstr("Cannot connect"));
  Write("up", "");
  engine = FindContainerEngine(options, In(20s));
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->version(), "docker 24.0.7");
  EXPECT_FALSE((*engine)->reports());
  EXPECT_FALSE((*engine)->in_tree());
  EXPECT_FALSE((*engine)->confines_root());
}

TEST_F(EngineTest, RootIsConfinedWhereNoRootRunsTheEngine) {
  Script("docker",
         "[ \"$1\" = --version ] && { echo 'Docker version 24.0.7, build 1'; "
         "exit; }\n[ \"$1\" = info ] && { echo "
         "'[\"name=seccomp,profile=builtin\",\"name=rootless\"]'; exit; }\n"
         "echo 24.0.7\n");
  EngineOptions options = Options();
  options.engine = "docker";
  const auto docker = FindContainerEngine(options, In(20s));
  ASSERT_TRUE(docker.ok()) << docker.status();
  EXPECT_TRUE((*docker)->confines_root());
  EXPECT_EQ(Engine("")->confines_root(), geteuid() != 0);
}

TEST_F(EngineTest, NothingOfAJobReachesTheEnginesClient) {
  const std::vector<std::string> env =
      ClientEnvironment({{"PATH", "/bin"},
                         {"XDG_RUNTIME_DIR", "/run/user/1"},
                         {"LD_PRELOAD", "/x.so"},
                         {"API_KEY", "k"},
                         {"CONTAINERS_CONF", "/c"},
                         {"DOCKER_HOST", "unix:///d"}});
  EXPECT_THAT(env, testing::UnorderedElementsAre(
                       "PATH=/bin", "XDG_RUNTIME_DIR=/run/user/1",
                       "CONTAINERS_CONF=/c", "DOCKER_HOST=unix:///d"));
}

TEST_F(EngineTest, WithoutAProgramThereIsNone) {
  EngineOptions options = Options();
  options.environment["PATH"] = dir_;
  EXPECT_EQ(FindContainerEngine(options, In(20s)).status().code(),
            StatusCode::kNotFound);
}

TEST(CliEngineTest, KnowsWhichImagesMayBeNewer) {
  EXPECT_TRUE(MayBeNewer("reg.example:5000/x"));
  EXPECT_TRUE(MayBeNewer("reg.example/x:latest"));
  EXPECT_FALSE(MayBeNewer("reg.example:5000/x:1"));
  EXPECT_FALSE(MayBeNewer("reg.example/x@sha256:00"));
  EXPECT_FALSE(MayBeNewer("localhost/x:latest"));
}

TEST(CliEngineTest, SaysEnginesWordsPlainly) {
  EXPECT_EQ(task::EngineSentence("Error: no such thing"), "no such thing");
  EXPECT_EQ(task::EngineSentence(
                "time=\"2026-01-01T00:00:00Z\" level=error msg=\"it broke\""),
            "it broke");
  EXPECT_TRUE(
      task::IsEngineAdvice("Run 'docker run --help' for more information"));
  EXPECT_FALSE(task::IsEngineAdvice("docker: Error response from daemon: no"));
  EXPECT_EQ(
      task::ProgramNotRun("[FATAL tini (7)] exec a b failed: No such file or "
                          "directory"),
      "a b");
  EXPECT_EQ(task::ProgramNotRun("[FATAL tini (7)] failed: exec"), "");
  EXPECT_EQ(task::ProgramNotRun("exec a failed: No such file"), "");
}

}  // namespace
}  // namespace lockstep::worker::container
