// What is measured over nccl, on a GPU in memory: all that it takes, and the
// rest is skipped with a word.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "worker/bench/bench_run.h"
#include "worker/collective/nccl/nccl_test_util.h"

namespace lockstep::worker::bench {
namespace {

using collective::nccl::NcclRanks;

TEST(NcclBenchTest, CollectivesAndStepsAreMeasuredAndRight) {
  char name[] = "/tmp/lockstep-test-XXXXXX";
  const std::string dir = mkdtemp(name);
  NcclRanks ranks(2);
  ranks.ForEach([&](int rank, collective::Communicator* c) {
    BenchOptions options;
    options.collectives = {collective::CollectiveKind::kAllReduce,
                           collective::CollectiveKind::kReduceScatter,
                           collective::CollectiveKind::kAllGather,
                           collective::CollectiveKind::kBroadcast};
    options.steps = true;
    options.ops = {collective::ReduceOp::kSum, collective::ReduceOp::kMax};
    options.min_bytes = options.max_bytes = 4096;
    options.iterations = 2;
    options.warm_up = 0;
    options.step.parameters = 1000;
    options.step.tensors = 3;
    options.step.compute_seconds = 0.0001;
    if (rank == 0) options.json = dir + "/results.json";
    bool wrong = false;
    const Status status = RunBench(options, c, &wrong);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_FALSE(wrong);
  });
  ranks.Leave();
  const auto results = nlohmann::json::parse(
      *RealFileSystem()->Read(dir + "/results.json"))["results"];
  // Four collectives, no maximum of floats, and steps.
  ASSERT_EQ(results.size(), 5u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GT(results[i]["in_place"]["seconds"], 0) << results[i];
    EXPECT_EQ(results[i]["in_place"]["wrong"], 0);
  }
  EXPECT_EQ(results[4]["wrong"], 0);
  RealFileSystem()->RemoveAll(dir).IgnoreError();
}

}  // namespace
}  // namespace lockstep::worker::bench
