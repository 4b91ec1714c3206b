// Checks of GPUs by processes, of a program without a GPU.
#include "worker/agent/checks/gpu_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>

#include "common/base/file.h"
#include "worker/agent/checks/check_run.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CheckRunTest : public testing::Test {
 protected:
  CheckRunTest() {
    char name[] = "/tmp/gpu-check-XXXXXX";
    dir_ = mkdtemp(name);
    plan_.program = std::string(getenv("LOCKSTEP_SOURCE")) +
                    "/tests/support/fake_gpu_check";
    plan_.environment = {"PATH=/usr/bin:/bin",
                         "FAKE_GPU_CHECK=" + dir_ + "/file",
                         "CUDA_VISIBLE_DEVICES=7"};
    plan_.within = 60s;
    plan_.gpus = {{0, "GPU-0"}, {2, "GPU-2"}};
  }
  ~CheckRunTest() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Say(const std::string& lines) { std::ofstream(dir_ + "/file") << lines; }
  // The devices and arguments of the processes that were started.
  std::string Started() {
    std::ifstream file(dir_ + "/file.log");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  GpuCheckAnswer Run() { return RunChecks(plan_, cancelled_); }

  std::string dir_;
  GpuCheckPlan plan_;
  std::atomic<bool> cancelled_ = false;
};

TEST_F(CheckRunTest, GpusAreCheckedAtOnceAndThenInPairs) {
  const GpuCheckAnswer answer = Run();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.checks.size(), 2u);
  for (const GpuCheck& check : answer.checks) {
    EXPECT_EQ(check.failure, "");
    EXPECT_EQ(Describe(check.parts),
              "memory 1875 GB/s, matmul 31.5 TFLOP/s, all_reduce 180.5 GB/s");
    EXPECT_GT(check.took, Duration{});
  }
  EXPECT_EQ(answer.checks[1].index, 2);
  EXPECT_EQ(answer.checks[1].uuid, "GPU-2");
  EXPECT_THAT(Started(), AllOf(HasSubstr("GPU-0 \n"), HasSubstr("GPU-2 \n"),
                               HasSubstr("GPU-0,GPU-2 --all-reduce\n")));
}

TEST_F(CheckRunTest, OneThatIsWrongHasNoAllReduce) {
  Say("GPU-0 fail\n");
  const GpuCheckAnswer answer = Run();
  ASSERT_EQ(answer.checks.size(), 2u);
  EXPECT_EQ(answer.checks[0].failure,
            "memory: 3 of its words are wrong, the first at byte 4096");
  EXPECT_EQ(answer.checks[0].parts.back().skipped, "an earlier part failed");
  EXPECT_EQ(answer.checks[1].failure, "");
  EXPECT_EQ(answer.checks[1].parts.back().skipped,
            "no second GPU of the node is free");
  EXPECT_THAT(Started(), Not(HasSubstr("--all-reduce")));
}

TEST_F(CheckRunTest, AnAllReduceThatFailsIsOfBothButNotOfThePartner) {
  Say("GPU-0,GPU-2 fail\n");
  GpuCheckAnswer answer = Run();
  ASSERT_EQ(answer.checks.size(), 2u);
  EXPECT_THAT(answer.checks[0].failure,
              HasSubstr("all_reduce with GPU 2: 3 of its words"));
  EXPECT_THAT(answer.checks[1].failure, HasSubstr("all_reduce with GPU 0"));
  Say("GPU-2,GPU-5 crash\n");
  plan_.gpus = {{2, "GPU-2"}};
  plan_.partner = GpuCheckTarget{5, "GPU-5"};
  answer = Run();
  ASSERT_EQ(answer.checks.size(), 1u);
  EXPECT_THAT(answer.checks[0].failure,
              HasSubstr("all_reduce with GPU 5: its check was killed by"));
}

TEST_F(CheckRunTest, OneThatHangsIsKilled) {
  Say("GPU-0 hang\nGPU-2 crash\n");
  plan_.within = 3s;
  const MonoTime begun = MonotonicNow();
  const GpuCheckAnswer answer = Run();
  EXPECT_LT(MonotonicNow() - begun, 60s);
  ASSERT_EQ(answer.checks.size(), 2u);
  EXPECT_THAT(answer.checks[0].failure, HasSubstr("its check hung in memory"));
  EXPECT_THAT(
      answer.checks[1].failure,
      AllOf(HasSubstr("was killed by signal 11"), HasSubstr("in memory")));
}

TEST_F(CheckRunTest, NonsenseIsAFailure) {
  Say("GPU-0 nonsense\n");
  EXPECT_THAT(Run().checks.at(0).failure, HasSubstr("its check printed"));
}

TEST_F(CheckRunTest, AHostThatCannotIsNoFailure) {
  Say("GPU-0 cannot\nGPU-2 cannot\n");
  GpuCheckAnswer answer = Run();
  EXPECT_EQ(answer.status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Message(answer.status), HasSubstr("no CUDA driver"));
  EXPECT_THAT(answer.checks, IsEmpty());
  plan_.program = "/no/such/program";
  answer = Run();
  EXPECT_EQ(answer.status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Message(answer.status), HasSubstr("/no/such/program"));
}

TEST_F(CheckRunTest, ACancelledCheckEndsSoon) {
  Say("GPU-0 hang\nGPU-2 hang\n");
  cancelled_ = true;
  const MonoTime begun = MonotonicNow();
  EXPECT_EQ(Run().status.code(), StatusCode::kCancelled);
  EXPECT_LT(MonotonicNow() - begun, 30s);
}

TEST(FindGpuCheckTest, ItIsBesideTheShim) {
  EXPECT_EQ(FindGpuCheck("none", "/bin/sh").value(), "");
  EXPECT_EQ(FindGpuCheck("auto", "/bin/sh").value(), "");
  EXPECT_EQ(FindGpuCheck("/bin/sh", "/bin/x").value(), "/bin/sh");
  EXPECT_THAT(Message(FindGpuCheck("/no/such", "/bin/x").status()),
              HasSubstr("--gpu-check /no/such"));
  EXPECT_FALSE(FindGpuCheck("sh", "/bin/x").ok());
}

}  // namespace
}  // namespace lockstep::worker::agent
