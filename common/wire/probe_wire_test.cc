#include "common/wire/probe_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(ProbeWireTest, ValuesSurvive) {
  const ProbeQuery query{7,
                         {{"a", "10.0.0.1", 40000}, {"b", "fd00::2", 65535}},
                         std::chrono::milliseconds(500)};
  const auto asked = FromProto(ToProto(query));
  ASSERT_TRUE(asked.ok()) << Message(asked.status());
  EXPECT_EQ(*asked, query);
  const ProbeAnswer answer{
      7, {{"a", true, ""}, {"b", false, "Connection timed out"}}};
  const auto said = FromProto(ToProto(answer));
  ASSERT_TRUE(said.ok()) << Message(said.status());
  EXPECT_EQ(*said, answer);
}

TEST(ProbeWireTest, WhatMakesNoSenseIsRefused) {
  const auto refusal = [](const ProbeTarget& target) {
    return Message(FromProto(ToProto(ProbeQuery{1, {target}, {}})).status());
  };
  EXPECT_THAT(refusal({"A!", "10.0.0.1", 1}), HasSubstr("targets[0].node"));
  EXPECT_THAT(refusal({"a", "host", 1}),
              HasSubstr("targets[0].address: \"host\" is not an IP address"));
  EXPECT_THAT(refusal({"a", "10.0.0.1", 0}), HasSubstr("targets[0].port"));
  EXPECT_THAT(refusal({"a", "10.0.0.1", 65536}), HasSubstr("targets[0].port"));
  ProbeQuery many;
  many.targets.assign(kMaxProbeTargets + 1, {"a", "10.0.0.1", 1});
  EXPECT_THAT(Message(FromProto(ToProto(many)).status()), HasSubstr("targets"));
}

TEST(ProbeWireTest, AnswersAreBounded) {
  ProbeAnswer answer{1, {{"a", false, std::string(257, 'x')}}};
  EXPECT_THAT(Message(FromProto(ToProto(answer)).status()),
              HasSubstr("results[0].error"));
  answer.results[0].error = "a\nb\x01";
  EXPECT_FALSE(FromProto(ToProto(answer)).ok());
  answer.results.assign(kMaxProbeTargets + 1, {"a", true, ""});
  EXPECT_THAT(Message(FromProto(ToProto(answer)).status()),
              HasSubstr("results"));
}

}  // namespace
}  // namespace lockstep
