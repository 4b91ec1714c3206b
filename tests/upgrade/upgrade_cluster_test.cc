// A cluster of an older commit is upgraded while its jobs run: its coordinator,
// then one worker daemon after the other, as docs/operations.md says.
//
// LOCKSTEP_OLD is the build folder of the older commit: tests/upgrade/run_old.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cluster/fixture.h"
#include "tests/cluster/step_model.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSteps = 30;
constexpr int64_t kHold = 20;

class UpgradeClusterTest : public ClusterTest {
 protected:
  UpgradeClusterTest() {
    const char* const old = getenv("LOCKSTEP_OLD");
    old_ = old == nullptr ? "" : old;
    manual_start_ = true;
    options_.bin_dir = Path("bin");
    options_.http_token = false;  // The oldest does not know the flag.
  }

  // From now on NAME that is started is this one.
  void Use(const std::string& name, const std::string& program) {
    std::filesystem::create_directories(Path("bin"));
    std::filesystem::remove(Path("bin/" + name));
    ASSERT_EQ(symlink(program.c_str(), Path("bin/" + name).c_str()), 0);
  }
  void UseOld(const std::string& name, const std::string& folder = "bin") {
    Use(name, fmt::format("{}/{}/{}", old_, folder, name));
  }
  // A daemon from before flags could have "-" for "_".
  void UseOldDaemon(const std::string& name) {
    const std::string script = Path("bin/" + name);
    std::filesystem::create_directories(Path("bin"));
    WriteFile(script, fmt::format(R"(#!/bin/bash
args=()
for arg; do
  [[ $arg != --* ]] || arg=--$(tr - _ <<<"${{arg#--}}")
  args+=("$arg")
done
exec {}/bin/{} "${{args[@]}}"
)",
                                  old_, name));
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  }
  std::string New(const std::string& name) const {
    return std::filesystem::canonical(ClusterTest::Binary(name));
  }

  v1::JobSpec Small(v1::JobSpec spec) {
    for (v1::RoleSpec& role : *spec.mutable_roles()) {
      role.mutable_resources()->set_cpus(0.25);
    }
    return spec;
  }
  // A native job of two ranks that waits in a step for `go`.
  void StartSteps(const std::string& name, const std::string& go) {
    v1::JobSpec spec =
        Small(Steps(name, 2,
                    {"--steps", std::to_string(kSteps), "--hold_step",
                     std::to_string(kHold), "--hold_file", Path(go)}));
    spec.set_argv(0, Path("bin/step_program"));
    spec.mutable_checkpoint()->set_interval_steps(5);
    Submit(spec);
    WaitUntil(name, "its checkpoint", [](const v1::Job& job) {
      return job.last_checkpoint().step() == kHold;
    });
  }
  void ExpectUndisturbed(const v1::Job& before) {
    const v1::Job now = WaitFor(before.name(), v1::JOB_STATE_RUNNING);
    EXPECT_EQ(now.generation(), 1u);
    EXPECT_EQ(now.attempts_size(), 0);
    for (const auto& [rank, status] : Ranks(before)) {
      EXPECT_EQ(PidOf(now, rank), status.pid());
    }
  }
  // As one that began and ended in its first generation.
  void ExpectEnds(const std::string& name) {
    const v1::Job job = WaitEnd(name, v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(job.generation(), 1u);
    EXPECT_EQ(job.attempts_size(), 1);
  }
  std::string Done() const {
    return fmt::format("done {} skipped 0 hash {}", kSteps,
                       HashWeights(ExpectedWeights(kSteps, 8)));
  }
  // The store's file as an older coordinator left it; "" where it is of the
  // same schema.
  std::string KeptStore() const {
    const std::string dir = cluster_dir() + "/coordinator";
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("coordinator.db.schema-")) return entry.path();
    }
    return "";
  }
  std::string cluster_dir() const { return options_.dir; }
  void ExpectOldCoordinatorRefuses();
  void ExpectOldCoordinatorTakes(const std::string& kept);

  std::string old_;
};

void UpgradeClusterTest::ExpectOldCoordinatorRefuses() {
  const CommandResult refused = RunCommand(
      {old_ + "/bin/lockstep-coordinator", "--dir",
       cluster_dir() + "/coordinator", "--cluster", "lab", "--listen",
       "127.0.0.1:0", "--http_listen", "127.0.0.1:0", "--insecure_loopback"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("was written by a later version"));
}

// The way back: the store of the moment of the upgrade.
void UpgradeClusterTest::ExpectOldCoordinatorTakes(const std::string& kept) {
  std::filesystem::create_directories(Path("back"));
  // The command is as old as schema 3.
  if (kept.back() < '3') {
    std::filesystem::copy(kept, Path("back/coordinator.db"));
  } else {
    const CommandResult restored = RunCommand(
        {old_ + "/bin/lockstep-coordinator", "restore", kept, Path("back")});
    ASSERT_EQ(restored.code, 0) << restored.err;
  }
  const Command old =
      StartCommand({old_ + "/bin/lockstep-coordinator", "--dir", Path("back"),
                    "--cluster", "lab", "--listen", "127.0.0.1:0",
                    "--http_listen", "127.0.0.1:0", "--insecure_loopback"});
  const std::string endpoint = Path("back/endpoint.json");
  EXPECT_TRUE(Eventually([&] { return RealFileSystem()->Exists(endpoint); }));
  const auto where = nlohmann::json::parse(ReadFile(endpoint), nullptr, false);
  ClientOptions options;
  options.address = where.value("grpc", "");
  options.insecure_loopback = true;
  auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  const auto job = (*client)->GetJob("held");
  EXPECT_TRUE(job.ok()) << job.status();
  if (job.ok()) {
    EXPECT_EQ(job->state(), v1::JOB_STATE_RUNNING);
  }
  EXPECT_TRUE(StopProcess(old.process, std::chrono::seconds(20)).ok());
}

TEST_F(UpgradeClusterTest, JobsRunOnWhileTheirClusterIsUpgraded) {
  ASSERT_FALSE(old_.empty()) << "run tests/upgrade/run_old";
  UseOldDaemon("lockstep-coordinator");
  UseOldDaemon("lockstep-worker");
  UseOld("lockstep-shim");
  UseOld("step_program", "tests");
  StartCluster();
  ASSERT_FALSE(HasFatalFailure());
  StartSteps("held", "go");
  StartSteps("killed", "never");
  Submit(Small(Shell("program", 1,
                     "echo before; until [ -e " + Path("go") +
                         " ]; do sleep 0.05; done; echo after")));
  ASSERT_TRUE(HasLine("program", 0, "before"));
  std::vector<v1::Job> running;
  for (const char* name : {"held", "killed", "program"}) {
    running.push_back(WaitFor(name, v1::JOB_STATE_RUNNING));
  }

  Use("lockstep-coordinator", New("lockstep-coordinator"));
  StopDaemon("coordinator");
  StartDaemon("coordinator");
  for (const v1::Job& job : running) ExpectUndisturbed(job);
  // The old daemons take work of it.
  RunJob(Small(Shell("second", 2, "echo $RANK")), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(Output("second", 1), ElementsAre("1"));

  for (const char* name : {"lockstep-worker", "lockstep-shim"}) {
    Use(name, New(name));
  }
  for (const char* name : {"worker-0", "worker-1"}) {
    StopDaemon(name);
    StartDaemon(name);
    for (const v1::Job& job : running) ExpectUndisturbed(job);
  }
  RunJob(Small(Shell("third", 2, "echo $RANK")), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(Output("third", 1), ElementsAre("1"));

  // What an old runtime saved, the new one loads.
  Use("step_program", TestBinary("step_program"));
  ASSERT_EQ(kill(static_cast<pid_t>(PidOf(running[1], 1)), SIGKILL), 0);
  const v1::Job killed = WaitEnd("killed", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(killed.generation(), 2u);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(Line("killed", rank, "start", 2), fmt::format("start {}", kHold));
    EXPECT_EQ(Line("killed", rank, "done", 2), Done());
  }

  WriteFile(Path("go"), "");
  ExpectEnds("held");
  EXPECT_EQ(Line("held", 0, "done"), Done());
  ExpectEnds("program");
  EXPECT_THAT(Output("program", 0), ElementsAre("before", "after"));

  const std::string kept = KeptStore();
  if (kept.empty()) return;
  StopDaemon("coordinator");
  ExpectOldCoordinatorRefuses();
  ExpectOldCoordinatorTakes(kept);
}

}  // namespace
}  // namespace lockstep::cli
