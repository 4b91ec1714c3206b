#include "worker/agent/warm/warm_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;

task::ShimSpec RankOf(std::vector<std::string> argv) {
  task::ShimSpec spec;
  spec.argv = std::move(argv);
  spec.env = {"OMP_NUM_THREADS=2", "PATH=/usr/bin", "RANK=1"};
  return spec;
}

TEST(MakeWarmTest, TheInterpreterRunsOursWithTheProgramsArguments) {
  task::ShimSpec spec =
      RankOf({"/opt/venv/bin/python3.12", "-X", "dev", "-u", "train.py", "-m"});
  spec.ports = {8000};
  spec.fence_nanos = 7;
  ASSERT_TRUE(MakeWarm(&spec));
  EXPECT_THAT(spec.argv, ElementsAre("/opt/venv/bin/python3.12", "-X", "dev",
                                     "-u", "/dev/fd/4", "train.py", "-m"));
  EXPECT_EQ(spec.secret_fd, 4u);
  EXPECT_FALSE(spec.secret.empty());
  EXPECT_TRUE(spec.ports.empty());
  EXPECT_EQ(spec.fence_nanos, 0) << "no rank yet, which the fence could end";
  std::string error;
  spec.job = "j";
  spec.cwd = spec.log_path = spec.task_record_path = spec.exit_record_path =
      spec.socket_path = "/x";
  spec.nonce = std::string(16, 'n');
  task::ShimSpec read;
  EXPECT_TRUE(DecodeShimSpec(EncodeShimSpec(spec), &read, &error)) << error;
  EXPECT_EQ(read.secret, spec.secret) << "it fits";
}

TEST(MakeWarmTest, OnlyPythonsScriptsAndModules) {
  task::ShimSpec module = RankOf({"python", "-m", "trainer.task"});
  EXPECT_TRUE(MakeWarm(&module));
  for (const auto& argv :
       std::vector<std::vector<std::string>>{{"./train"},
                                             {"torchrun", "train.py"},
                                             {"python"},
                                             {"python", "-c", "import torch"},
                                             {"python", "-"}}) {
    task::ShimSpec spec = RankOf(argv);
    EXPECT_FALSE(MakeWarm(&spec)) << argv[0];
    EXPECT_EQ(spec.argv, argv);
  }
  task::ShimSpec contained = RankOf({"python", "train.py"});
  contained.container.name = "c";
  EXPECT_FALSE(MakeWarm(&contained));
}

TEST(MayBecomeTest, WhatSaysWhichRankItIsMayDiffer) {
  const WarmSample sample{RankOf({"python", "train.py"}), {}};
  WarmSample rank = sample;
  rank.spec.env = {"LOCKSTEP_RANK=3",
                   "MASTER_ADDR=10.0.0.1",
                   "OMP_NUM_THREADS=2",
                   "PATH=/usr/bin",
                   "RANK=3",
                   "TF_CONFIG={}"};
  rank.spec.cwd = "/elsewhere";
  rank.spec.rank = 3;
  rank.spec.generation = 2;
  EXPECT_TRUE(MayBecome(sample, rank));
}

TEST(MayBecomeTest, WhatImportsMayReadMayNot) {
  const WarmSample sample{RankOf({"python", "train.py"}), {}};
  const auto differs = [&](const auto& change) {
    WarmSample rank = sample;
    change(&rank.spec);
    return !MayBecome(sample, rank);
  };
  EXPECT_TRUE(differs([](auto* rank) { rank->env[0] = "OMP_NUM_THREADS=1"; }));
  EXPECT_TRUE(differs([](auto* rank) { rank->env.push_back("MODEL=big"); }));
  EXPECT_TRUE(differs([](auto* rank) { rank->argv.push_back("--lr"); }));
  EXPECT_TRUE(differs([](auto* rank) { rank->set_ids = true; }));
  EXPECT_TRUE(differs([](auto* rank) { rank->uid = 7; }));
  EXPECT_TRUE(differs([](auto* rank) { rank->container.name = "c"; }));
}

TEST(MayBecomeTest, LimitsAreThoseOfTheCgroupThatItIsIn) {
  WarmSample sample{RankOf({"python", "train.py"}), {}};
  sample.share.memory_bytes = int64_t{4} << 30;
  WarmSample rank = sample;
  EXPECT_TRUE(MayBecome(sample, rank));
  rank.share.memory_bytes = int64_t{16} << 30;
  EXPECT_FALSE(MayBecome(sample, rank));
  rank = sample;
  rank.share.cpus = 0.5;
  EXPECT_FALSE(MayBecome(sample, rank));
}

}  // namespace
}  // namespace lockstep::worker::agent
