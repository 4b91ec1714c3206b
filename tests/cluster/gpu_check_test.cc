// Checks of GPUs by an operator, with real daemons; driver and check are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class GpuCheckTest : public ClusterTest {
 protected:
  void SetUp() override {
    manual_start_ = true;
    ClusterTest::SetUp();
    setenv("FAKE_NVML_GPUS", "4", 1);
    setenv("FAKE_NVML_MODEL", "H100", 1);
    setenv("FAKE_NVML_FILE", Path("driver").c_str(), 1);
    setenv("FAKE_GPU_CHECK", Path("check").c_str(), 1);
    WriteFile(Path("driver"), "");
    WriteFile(Path("check"), "");
    options_.gpus = 4;  // Two on each of two nodes.
    for (const char* worker : {"worker-0", "worker-1"}) {
      options_.extra_arguments[worker] = {
          "--nvml-library", LOCKSTEP_FAKE_NVML, "--gpu-check",
          std::string(getenv("LOCKSTEP_SOURCE")) +
              "/tests/support/fake_gpu_check"};
    }
    StartCluster();
  }
  void TearDown() override {
    ClusterTest::TearDown();
    for (const char* name : {"FAKE_NVML_GPUS", "FAKE_NVML_MODEL",
                             "FAKE_NVML_FILE", "FAKE_GPU_CHECK"}) {
      unsetenv(name);
    }
  }
  v1::Node Node() {
    const auto node = client()->GetNode("worker-0");
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? *node : v1::Node();
  }
  v1::GpuState StateOf(int gpu) { return Node().gpus(gpu).state(); }
};

TEST_F(GpuCheckTest, AnOperatorChecksAndLifts) {
  CommandResult result = Lockstep({"nodes", "check", "worker-0"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("0 +memory +passed +1875 GB/s"));
  EXPECT_THAT(result.out, ContainsRegex("1 +all_reduce +passed +180.5 GB/s"));
  WriteFile(Path("check"), "GPU-2 fail\n");
  result = Lockstep({"nodes", "check", "worker-0", "--gpu", "1", "-o", "json"});
  EXPECT_EQ(result.code, 1);
  const auto checks = nlohmann::json::parse(result.out)["checks"];
  EXPECT_THAT(checks[0]["failure"].get<std::string>(),
              HasSubstr("memory: 3 of its words are wrong"));
  EXPECT_EQ(StateOf(1), v1::GPU_STATE_WITHHELD);
  EXPECT_EQ(StateOf(0), v1::GPU_STATE_OK);
  EXPECT_THAT(Lockstep({"nodes", "describe", "worker-0"}).out,
              HasSubstr("failed a check: memory: 3 of its words"));
  // It is well again, and a check says so.
  WriteFile(Path("check"), "");
  EXPECT_EQ(Lockstep({"nodes", "check", "worker-0", "--gpu", "1"}).code, 0);
  EXPECT_EQ(StateOf(1), v1::GPU_STATE_OK);
  // A reading that stands is lifted, also for the next coordinator.
  WriteFile(Path("driver"), "set 1 remap_failure 1\n");
  ASSERT_TRUE(Eventually([&] { return StateOf(1) == v1::GPU_STATE_WITHHELD; }));
  EXPECT_EQ(Lockstep({"nodes", "check", "worker-0", "--gpu", "1"}).code, 1)
      << "its readings are bad";
  EXPECT_EQ(Lockstep({"nodes", "undrain", "worker-0", "--gpu", "1"}).code, 0);
  const auto beats = [&] { return Node().last_heartbeat().seconds(); };
  const auto next_beats = [&] {
    const int64_t before = beats();
    return Eventually([&] { return beats() >= before + 2; });
  };
  EXPECT_TRUE(next_beats());
  EXPECT_EQ(StateOf(1), v1::GPU_STATE_OK);
  KillDaemon("coordinator");
  StartDaemon("coordinator");
  ASSERT_TRUE(Eventually([&] {
    const auto node = client()->GetNode("worker-0");
    return node.ok() && node->state() == v1::NODE_STATE_READY;
  }));
  EXPECT_TRUE(next_beats());
  EXPECT_EQ(StateOf(1), v1::GPU_STATE_OK);
}

TEST_F(GpuCheckTest, AGpuInUseIsRefusedAndOneInCheckGetsNoWork) {
  v1::JobSpec spec = Shell("holds", 1, "sleep 600");
  spec.mutable_roles(0)->mutable_resources()->set_gpus(2);
  Submit(spec);
  const v1::Job job = WaitFor("holds", v1::JOB_STATE_RUNNING);
  const std::string node = job.tasks(0).node();
  const std::string other = node == "worker-0" ? "worker-1" : "worker-0";
  const std::string index = std::to_string(job.tasks(0).gpus(0));
  const CommandResult held = Lockstep({"nodes", "check", node, "--gpu", index});
  EXPECT_NE(held.code, 0);
  EXPECT_THAT(held.err, HasSubstr("a job holds GPU " + index));
  const auto free = client()->GetNode(other);
  ASSERT_TRUE(free.ok()) << free.status();
  ASSERT_EQ(free->gpus_size(), 2);
  WriteFile(Path("check"), free->gpus(0).uuid() + " hang\n");
  const Command check = StartCommand(
      {Binary("lockstep"), "nodes", "check", other}, CliEnvironment());
  ASSERT_TRUE(Eventually([&] {
    const auto known = client()->GetNode(other);
    return known.ok() && known->gpus(1).state() == v1::GPU_STATE_CHECKING;
  }));
  spec = Shell("waits", 1, "exit 0");
  spec.mutable_roles(0)->mutable_resources()->set_gpus(1);
  Submit(spec);
  EXPECT_EQ(Get("waits").state(), v1::JOB_STATE_QUEUED);
  // The daemon's end ends the check, and its next life gives the GPUs back.
  StopDaemon(other);
  WriteFile(Path("check"), "");
  StartDaemon(other);
  const CommandResult result = WaitCommand(check);
  EXPECT_EQ(result.code, 0) << "the command asks again: " << result.err;
  WaitEnd("waits", v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace lockstep
