#include "common/wire/gpu_check_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

GpuCheckAnswer Sample() {
  GpuCheckPart memory{"memory", 1875.5, "GB/s"};
  GpuCheckPart matmul{"matmul"};
  matmul.failure = "element 7 is 3, not 4";
  GpuCheckPart all_reduce{"all_reduce"};
  all_reduce.skipped = "no second GPU is free";
  GpuCheck check{3,
                 "GPU-3",
                 WallTime(1000s),
                 21s,
                 "matmul: element 7 is 3",
                 {memory, matmul, all_reduce}};
  return {7, OkStatus(), {check}};
}

TEST(GpuCheckWireTest, ValuesSurvive) {
  const GpuCheckOrder order{7, {0, 3}, 60s, 1};
  EXPECT_EQ(*FromProto(ToProto(order)), order);
  EXPECT_FALSE(FromProto(ToProto(GpuCheckOrder{7, {0}, 60s}))->partner);
  const GpuCheckAnswer answer = Sample();
  const auto said = FromProto(ToProto(answer));
  ASSERT_TRUE(said.ok()) << Message(said.status());
  EXPECT_EQ(said->id, 7u);
  EXPECT_TRUE(said->status.ok());
  EXPECT_EQ(said->checks, answer.checks);
  const auto refused =
      FromProto(ToProto(GpuCheckAnswer{8, Unimplemented("no CUDA")}));
  EXPECT_EQ(refused->status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Message(refused->status), "no CUDA");
}

TEST(GpuCheckWireTest, WhatADaemonSaysIsBounded) {
  const auto refusal = [](const auto& change) {
    GpuCheckAnswer answer = Sample();
    change(&answer.checks[0]);
    return Message(FromProto(ToProto(answer)).status());
  };
  EXPECT_THAT(refusal([](GpuCheck* c) { c->index = 4096; }),
              HasSubstr("checks[0].index"));
  EXPECT_THAT(refusal([](GpuCheck* c) { c->failure = std::string(257, 'x'); }),
              HasSubstr("checks[0].failure"));
  EXPECT_THAT(refusal([](GpuCheck* c) { c->parts.resize(17); }),
              HasSubstr("checks[0].parts"));
  EXPECT_THAT(refusal([](GpuCheck* c) { c->parts[0].unit = "GB\x01"; }),
              HasSubstr("checks[0].parts[0].unit"));
  for (const double value : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(refusal([&](GpuCheck* c) { c->parts[0].value = value; }),
                HasSubstr("checks[0].parts[0].value"));
  }
  EXPECT_THAT(Message(FromProto(ToProto(GpuCheckOrder{1, {0}, 601s})).status()),
              HasSubstr("within"));
  EXPECT_THAT(Message(FromProto(ToProto(GpuCheckOrder{1, {-1}, 6s})).status()),
              HasSubstr("gpus"));
}

TEST(GpuCheckTest, PartsAreASentence) {
  EXPECT_EQ(Describe(Sample().checks[0].parts),
            "memory 1876 GB/s, matmul failed: element 7 is 3, not 4, "
            "all_reduce skipped: no second GPU is free");
}

}  // namespace
}  // namespace lockstep
