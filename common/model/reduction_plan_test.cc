#include "common/model/reduction_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

ReductionPlan Plan() {
  ReductionPlan plan;
  plan.ranks = 4;
  plan.hosts = 2;
  plan.communicator = "tcp ring from 65536, chunks of 131072";
  plan.bucket_bytes = 4 << 20;
  plan.first_bucket_bytes = 1 << 20;
  plan.last_bucket_bytes = 256 << 10;
  plan.parameters = 10;
  plan.layout = "0123456789abcdef";
  plan.order = {9, 8, 7, 3, 4, 5, 6, 0, 2, 1};
  plan.learned_at = 2;
  return plan;
}

std::string With(std::string_view from, std::string_view to) {
  std::string text = Format(Plan()).value();
  text.resize(text.find("hash "));
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string Complaint(const std::string& text) {
  const auto plan = ParseReductionPlan(text);
  if (plan.ok()) return "OK";
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  return Message(plan.status());
}

TEST(ReductionPlanTest, SurvivesItsText) {
  ReductionPlan plan = Plan();
  const std::string text = Format(plan).value();
  EXPECT_THAT(text, HasSubstr("\norder 9-7 3-6 0 2-1\n"));
  EXPECT_THAT(text, HasSubstr("\nhash " + HashOf(plan) + "\n"));
  EXPECT_EQ(ParseReductionPlan(text).value(), plan);

  plan.order.clear();
  plan.learned_at = 0;
  plan.communicator.clear();
  plan.wire = "bf16";
  EXPECT_EQ(ParseReductionPlan(Format(plan).value()).value(), plan);
  EXPECT_NE(HashOf(plan), HashOf(Plan()));
}

TEST(ReductionPlanTest, TheHashIsOfAllOfIt) {
  const std::string hash = HashOf(Plan());
  EXPECT_EQ(hash.size(), 16u);
  const auto changed = [&](auto change) {
    ReductionPlan plan = Plan();
    change(&plan);
    return HashOf(plan) != hash;
  };
  EXPECT_TRUE(changed([](ReductionPlan* p) { p->ranks = 5; }));
  EXPECT_TRUE(changed([](ReductionPlan* p) { p->hosts = 1; }));
  EXPECT_TRUE(changed([](ReductionPlan* p) { p->communicator += "1"; }));
  EXPECT_TRUE(changed([](ReductionPlan* p) { ++p->bucket_bytes; }));
  EXPECT_TRUE(changed([](ReductionPlan* p) { ++p->last_bucket_bytes; }));
  EXPECT_TRUE(changed([](ReductionPlan* p) { p->layout[0] = 'f'; }));
  EXPECT_TRUE(changed([](ReductionPlan* p) { p->learned_at = 3; }));
  EXPECT_TRUE(
      changed([](ReductionPlan* p) { std::swap(p->order[0], p->order[5]); }));
}

TEST(ReductionPlanTest, PeopleMayComment) {
  std::string text = Format(Plan()).value();
  text.insert(text.find('\n') + 1, "# kept from the run of May\n\n");
  EXPECT_EQ(ParseReductionPlan(text).value(), Plan());
  // Changed by hand, and without the hash of before.
  EXPECT_EQ(ParseReductionPlan(With("hosts 2", "hosts 1")).value().hosts, 1);
  std::string changed = Format(Plan()).value();
  changed.replace(changed.find("hosts 2"), 7, "hosts 1");
  EXPECT_THAT(Complaint(changed), HasSubstr("was edited"));
}

TEST(ReductionPlanTest, ComplaintsNameTheLine) {
  EXPECT_THAT(Complaint(""), HasSubstr("is empty"));
  EXPECT_THAT(Complaint("GIF89a\x01"), HasSubstr("begins with the line"));
  EXPECT_THAT(Complaint(With("plan 1", "plan 2")), HasSubstr("version 2"));
  EXPECT_THAT(Complaint(With("ranks 4", "ranks 1")),
              HasSubstr("'ranks' cannot be '1'"));
  EXPECT_THAT(Complaint(With("hosts 2", "hosts 5")),
              HasSubstr("'hosts' cannot be '5'"));
  EXPECT_THAT(Complaint(With("hosts 2\n", "")),
              HasSubstr("the reduction plan has no 'hosts'"));
  EXPECT_THAT(Complaint(With("hosts 2", "hosts 2\nhosts 2")),
              HasSubstr("the reduction plan has 'hosts' twice"));
  EXPECT_THAT(Complaint(With("hosts 2", "hosts 2\nhast 3")),
              HasSubstr("'hast' is not a part"));
  EXPECT_THAT(Complaint(With("fp32", "fp31")), HasSubstr("'wire'"));
  EXPECT_THAT(Complaint(With("tcp", "\x7f")), HasSubstr("'communicator'"));
  EXPECT_THAT(Complaint(With("1048576 ", "")), HasSubstr("'buckets'"));
  EXPECT_THAT(Complaint(With("1048576", "0")), HasSubstr("'buckets'"));
  EXPECT_THAT(Complaint(With("cdef", "cdeg")), HasSubstr("'layout'"));
  EXPECT_THAT(Complaint(With("9-7", "9-6")), HasSubstr("'order'"));
  EXPECT_THAT(Complaint(With("9-7", "4294967305-7")), HasSubstr("'order'"));
  EXPECT_THAT(Complaint(With("9-7", "9")), HasSubstr("'order'"));
  EXPECT_THAT(Complaint(With("learned-at 2", "learned-at -2")),
              HasSubstr("'learned-at'"));
  EXPECT_THAT(Complaint(With("parameters 10", "parameters 99999999999")),
              HasSubstr("'parameters'"));
}

TEST(ReductionPlanTest, IsBounded) {
  ReductionPlan plan = Plan();
  plan.parameters = 100'000;
  plan.order.resize(plan.parameters);
  std::iota(plan.order.begin(), plan.order.end(), 0u);
  EXPECT_EQ(ParseReductionPlan(Format(plan).value()).value(), plan);
  // Nothing to shorten.
  for (uint32_t& i : plan.order) i = i * 7 % plan.parameters;
  EXPECT_EQ(Format(plan).status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Complaint(std::string(kMaxReductionPlan + 1, '#')),
              HasSubstr("at most"));
}

}  // namespace
}  // namespace lockstep
