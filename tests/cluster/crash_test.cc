// Daemons that die between deciding and doing, at each place in turn: a job
// still runs once, or is started again where that is all that can be done.
#include <cctype>

#include "common/base/random.h"
#include "tests/cluster/fixture.h"

namespace lockstep::cli {
namespace {

using ::testing::ValuesIn;

struct Crash {
  const char* daemon;
  const char* fault;
  // Whether ranks may have to be started a second time.
  bool may_restart = false;
};

std::vector<Crash> AllCrashes() {
  return {
      // A commit that is lost, and one that nobody was told of. A program job
      // takes five: submitted, placed, launched, running, ended.
      {"coordinator", "store.before_commit=crash@1"},
      {"coordinator", "store.before_commit=crash@2"},
      {"coordinator", "store.before_commit=crash@3"},
      {"coordinator", "store.before_commit=crash@4"},
      {"coordinator", "store.before_commit=crash@5"},
      {"coordinator", "store.before_commit=crash@6"},
      {"coordinator", "store.after_commit=crash@1"},
      {"coordinator", "store.after_commit=crash@2"},
      {"coordinator", "store.after_commit=crash@3"},
      {"coordinator", "store.after_commit=crash@4"},
      {"coordinator", "store.after_commit=crash@5"},
      {"coordinator", "store.after_commit=crash@6"},
      // A full disk, once.
      {"coordinator", "store.before_commit=error@2"},
      {"coordinator", "store.before_commit=error@4"},
      {"worker-0", "worker.before_start=crash@1", true},
      {"worker-0", "worker.after_start=crash@1"},
      {"worker-0", "worker.before_exit=crash@1"},
  };
}

class CrashTest : public ClusterTest,
                  public testing::WithParamInterface<Crash> {
 protected:
  // Starts what has died, without the fault.
  void Heal() {
    const std::string daemon = GetParam().daemon;
    if (!FaultStruck(daemon)) return;
    struck_ = true;
    cluster()->set_extra_arguments({});
    ASSERT_NO_FATAL_FAILURE(StartDaemon(daemon));
  }
  bool struck_ = false;
};

TEST_P(CrashTest, TheJobRuns) {
  const Crash crash = GetParam();
  StopDaemon(crash.daemon);
  cluster()->set_extra_arguments(
      {{crash.daemon, {"--allow-faults", crash.fault}}});
  const Status started = cluster()->StartDaemon(crash.daemon);
  ASSERT_TRUE(started.ok()) << started;
  // It may die before it serves.
  EXPECT_TRUE(Eventually([&] {
    Heal();
    return struck_ || cluster()->WaitReady().ok();
  }));

  SubmitOptions options;
  options.request_id = RandomUuid();
  const v1::JobSpec spec =
      Shell("job", 2, "echo ran >> " + root() + "/ran-$RANK; sleep 0.1");
  EXPECT_TRUE(Eventually([&] {
    const bool ok = client()->SubmitJob(spec, options).ok();
    if (!ok) Heal();
    return ok;
  }));
  v1::Job job;
  EXPECT_TRUE(Eventually([&] {
    Heal();
    const auto now = client()->GetJob("job");
    if (now.ok()) job = *now;
    return IsFinalState(job.state());
  }));
  Heal();
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.DebugString();
  if (std::string(crash.fault).find("crash") != std::string::npos) {
    EXPECT_TRUE(struck_) << "the fault point was never passed";
  }
  if (!crash.may_restart) {
    EXPECT_EQ(job.generation(), 1u);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(ReadFile(root() + "/ran-" + std::to_string(rank)), "ran\n");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CrashTest, ValuesIn(AllCrashes()), [](const auto& info) {
      std::string name = std::string(info.param.daemon) + info.param.fault;
      std::erase_if(name, [](char c) { return !std::isalnum(c); });
      return name;
    });

}  // namespace
}  // namespace lockstep::cli
