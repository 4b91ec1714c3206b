// The program lockstep-bench from outside: exit codes, stdout, stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "common/base/status.h"

namespace lockstep::worker::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class BenchMainTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* bin = std::getenv("LOCKSTEP_BIN");
    ASSERT_NE(bin, nullptr) << "run me by ctest";
    program_ = JoinPath(bin, "lockstep-bench");
    char name[] = "/tmp/lockstep-test-XXXXXX";
    dir_ = mkdtemp(name);
    json_ = dir_ + "/results.json";
  }
  void TearDown() override { RealFileSystem()->RemoveAll(dir_).IgnoreError(); }

  int Run(const std::string& arguments) {
    const std::string command = fmt::format("'{0}' {1} >'{2}/out' 2>'{2}/err'",
                                            program_, arguments, dir_);
    const int status = std::system(command.c_str());
    out_ = *RealFileSystem()->Read(dir_ + "/out");
    err_ = *RealFileSystem()->Read(dir_ + "/err");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // The results that a run has written.
  nlohmann::json Document() const {
    return nlohmann::json::parse(*RealFileSystem()->Read(json_));
  }

  std::string program_, dir_, json_, out_, err_;
};

TEST_F(BenchMainTest, TwoRanksAddUpAndCheck) {
  ASSERT_EQ(Run("allreduce --backend tcp -b 4 -e 4K -f 32 -n 2 -w 1 -c 1 "
                "--json " +
                json_),
            0)
      << err_;
  EXPECT_THAT(out_, HasSubstr("backend tcp"));
  EXPECT_THAT(out_, HasSubstr("#wrong"));
  EXPECT_THAT(out_, HasSubstr("Out of bounds values : 0 OK"));
  const auto document = Document();
  ASSERT_EQ(document["results"].size(), 3u);
  EXPECT_EQ(document["results"][2]["bytes"], 4096);
  EXPECT_EQ(document["results"][2]["in_place"]["wrong"], 0);
  EXPECT_GT(document["results"][2]["out_of_place"]["seconds"], 0);
  EXPECT_EQ(document["results"][2]["ranks"], 2);
  EXPECT_TRUE(document["machine"].contains("cpu"));
}

TEST_F(BenchMainTest, EveryCollectiveTypeAndOp) {
  EXPECT_EQ(Run("all --backend tcp -g 3 -b 3000 -e 3000 -n 1 -w 0 -d all -o "
                "all --parameters 16K --bucket 30K --compute 1"),
            0)
      << err_ << out_;
  for (const char* part :
       {"# all-reduce", "# reduce-scatter", "# all-gather", "# broadcast",
        "# all-to-all", "bfloat16", "int64", "# step:"}) {
    EXPECT_THAT(out_, HasSubstr(part));
  }
  EXPECT_THAT(out_, HasSubstr("values : 0 OK"));
}

TEST_F(BenchMainTest, StepsAreMeasuredAndChecked) {
  for (const char* backend : {"shm", "tcp"}) {
    for (const char* more : {"", "--wire bf16 --accumulate 3"}) {
      ASSERT_EQ(Run(fmt::format(
                    "step -g 3 --backend {} --parameters 100K --tensors 7 "
                    "--compute 1 --bucket 64K -n 5 -w 1 {} --json {}",
                    backend, more, json_)),
                0)
          << err_ << out_;
      for (const char* part :
           {"rank 0 alone", "all ranks, no reductions", "p99 (ms)",
            "efficiency", "Exposed communication", "values : 0 OK"}) {
        EXPECT_THAT(out_, HasSubstr(part));
      }
      const auto step = Document()["results"][0];
      EXPECT_EQ(step["collective"], "step");
      EXPECT_EQ(step["parameters"], 100000);
      EXPECT_EQ(step["wrong"], 0);
      EXPECT_EQ(step["by_rank"].size(), 3u);
      EXPECT_EQ(step["wire"], *more == '\0' ? "fp32" : "bf16");
      // 400 kB as fp32, in 64 KiB at most, with the step's control words.
      EXPECT_GE(step["bytes"].get<int>(), *more == '\0' ? 400000 : 200000);
      EXPECT_LT(step["bytes"].get<int>(), *more == '\0' ? 410000 : 210000);
      EXPECT_GE(step["reductions"].get<double>(), *more == '\0' ? 6 : 3);
      EXPECT_GT(step["step"]["p50"].get<double>(), 0);
      EXPECT_GE(step["step"]["p99"].get<double>(),
                step["step"]["p50"].get<double>());
    }
  }
}

TEST_F(BenchMainTest, TheSlowRankIsTheStraggler) {
  ASSERT_EQ(Run("step -g 2 --parameters 1000 --tensors 2 --compute 4 -n 40 "
                "--slow 1=200 --json " +
                json_),
            0)
      << err_ << out_;
  EXPECT_THAT(out_, HasSubstr("Straggler            : rank 1 came last to"));
  const auto step = Document()["results"][0];
  EXPECT_EQ(step["straggler"]["rank"], 1);
  // Two thirds, where the machine does nothing else.
  EXPECT_GT(step["straggler"]["cost"].get<double>(), 0.1);
  EXPECT_LT(step["efficiency"].get<double>(), 0.95);
}

TEST_F(BenchMainTest, ArgumentsAloneAreChecked) {
  EXPECT_EQ(Run("allreduce -b 8 -e 1M --check-arguments"), 0) << err_;
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_EQ(Run("allreduce -d floot --check-arguments"), 2);
}

TEST_F(BenchMainTest, OneRankIsFine) {
  EXPECT_EQ(Run("step -g 1 --parameters 1M --compute 1 -n 3"), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("values : 0 OK"));
  EXPECT_EQ(Run("allreduce -g 1 -b 8 -e 8 -n 1"), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("backend self"));
}

TEST_F(BenchMainTest, WrongUsageIsTwoAndHelpIsZero) {
  for (const char* wrong :
       {"", "frobnicate", "allreduce -b", "allreduce -b 12q",
        "allreduce -b 2M -e 1M", "allreduce -d floot", "allreduce -o xor",
        "allreduce -f 1", "allreduce -g 0", "allreduce --root 2 -g 2",
        "step --parameters 0", "step --wire fp8", "step --slow 2",
        "step --slow 2=10 -g 2", "step --compute 1 --flops 1G",
        "step --accumulate 0", "allreduce --backend gloo",
        "allreduce --devices 0,1", "allreduce --backend nccl --devices 0",
        "allreduce --backend nccl --devices 0,x",
        "allreduce --backend nccl --devices 0,1,2"}) {
    EXPECT_EQ(Run(wrong), 2) << wrong;
    EXPECT_THAT(err_, HasSubstr("lockstep-bench --help")) << wrong;
    EXPECT_THAT(out_, IsEmpty()) << wrong;
  }
  EXPECT_EQ(Run("--help"), 0);
  EXPECT_THAT(out_, HasSubstr("--minbytes"));
  EXPECT_EQ(Run("--version"), 0);
}

TEST_F(BenchMainTest, WhatCannotRunIsOneAndSaysWhy) {
  EXPECT_EQ(Run("allreduce --backend nothing"), 1);
  EXPECT_THAT(err_, HasSubstr("unknown backend nothing"));
  EXPECT_EQ(Run("broadcast --root 2"), 1);
  EXPECT_THAT(err_, HasSubstr("there are 2 ranks"));
}

TEST_F(BenchMainTest, RanksAskForTheirGpus) {
  if (access("/dev/nvidiactl", F_OK) == 0) {
    GTEST_SKIP() << "there is a GPU: tests/gpu measures it";
  }
  for (const char* devices : {"", "--devices 0,0"}) {
    EXPECT_EQ(Run(fmt::format("allreduce --backend nccl {}", devices)), 1);
    EXPECT_THAT(err_, HasSubstr("backend nccl cannot be used: rank 0 "));
    // It has looked for one.
    EXPECT_THAT(err_, Not(HasSubstr("rank 0 has no GPU\n")));
  }
}

}  // namespace
}  // namespace lockstep::worker::bench
