// What the model of docs/scale.md takes for buckets is what jobs plan.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "worker/collective/bucket_plan.h"

namespace lockstep::worker::collective {
namespace {

// Of tensors of 1 KiB.
std::vector<uint64_t> PlannedBuckets(size_t bucket_bytes, uint64_t bytes) {
  const BucketSizes sizes = SizesFor("hierarchical", bucket_bytes);
  EXPECT_EQ(sizes, SizesFor("tcp", bucket_bytes));
  std::vector<BucketParameter> tensors;
  for (uint64_t begin = 0; begin < bytes; begin += 1024) {
    tensors.push_back({std::to_string(begin), 1024 / sizeof(float)});
  }
  const auto plan =
      PlanBuckets(tensors, {sizes.bucket, sizes.first, sizes.last, 0});
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<uint64_t> buckets;
  for (const BucketLayout& bucket : plan->buckets) {
    buckets.push_back(bucket.bytes);
  }
  return buckets;
}

TEST(BucketCasesTest, AreThePlanners) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE");
  ASSERT_NE(source, nullptr) << "run me by ctest";
  std::ifstream file(std::string(source) + "/tests/bench/bucket_cases.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream numbers(line);
    size_t bucket_bytes = 0;
    uint64_t bytes = 0;
    numbers >> bucket_bytes >> bytes;
    std::vector<uint64_t> buckets;
    for (uint64_t size = 0; numbers >> size;) buckets.push_back(size);
    EXPECT_EQ(PlannedBuckets(bucket_bytes, bytes), buckets) << line;
    ++cases;
  }
  EXPECT_GT(cases, 40);
}

}  // namespace
}  // namespace lockstep::worker::collective
