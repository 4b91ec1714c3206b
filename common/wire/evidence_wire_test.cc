#include "common/wire/evidence_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

using testing::HasSubstr;

RankEvidence Full() {
  RankEvidence evidence;
  evidence.rank = 3;
  evidence.node = "a";
  evidence.time = FromUnixNanos(1'700'000'000'000'000'000);
  evidence.took = std::chrono::milliseconds(120);
  ThreadEvidence thread{8,
                        "MainThread",
                        "S",
                        "futex_wait_queue",
                        "futex",
                        "futex_wait_queue\ndo_syscall_64",
                        true,
                        true,
                        {{"train", "main", "train.py", 7, false}}};
  evidence.processes = {
      {8, 1, "python3", "S", 1.5, 4096, 1, 70, kPySpySource, "", {thread}}};
  evidence.sockets = {{"tcp", "10.0.0.1:1", "10.0.0.2:2", "ESTABLISHED", 3, 4}};
  evidence.readings = {{"cpu.some.avg10", 2.5}};
  evidence.log_lines = {"step 7"};
  evidence.notes = {"a note"};
  evidence.phase = "allreduce";
  evidence.step = 12;
  evidence.nccl_ras = {"Job summary"};
  evidence.flight_records = {{"0 (default_pg)", 7, "all_reduce", "started"}};
  return evidence;
}

TEST(EvidenceWireTest, ValuesSurvive) {
  const EvidenceQuery query{
      7, "job", 2, {0, 3}, true, 200, std::chrono::seconds(5), "uid"};
  const auto asked = FromProto(ToProto(query));
  ASSERT_TRUE(asked.ok()) << Message(asked.status());
  EXPECT_EQ(*asked, query);
  EvidenceAnswer answer;
  answer.id = 7;
  answer.evidence = Full();
  answer.last = true;
  const auto said = FromProto(ToProto(answer));
  ASSERT_TRUE(said.ok()) << Message(said.status());
  EXPECT_EQ(said->id, 7u);
  EXPECT_TRUE(said->last);
  EXPECT_TRUE(said->status.ok());
  ASSERT_TRUE(said->evidence.has_value());
  EXPECT_EQ(*said->evidence, Full());
  answer.evidence.reset();
  answer.status = Unavailable("it is busy");
  const auto refused = FromProto(ToProto(answer));
  ASSERT_TRUE(refused.ok()) << Message(refused.status());
  EXPECT_EQ(refused->status, answer.status);
  EXPECT_FALSE(refused->evidence.has_value());
}

TEST(EvidenceWireTest, WhatMakesNoSenseIsRefused) {
  const auto refusal = [](auto change) {
    RankEvidence evidence = Full();
    change(&evidence);
    return Message(FromProto(ToProto(evidence)).status());
  };
  EXPECT_EQ(refusal([](RankEvidence*) {}), "");
  EXPECT_THAT(refusal([](RankEvidence* e) { e->rank = -1; }),
              HasSubstr("evidence.rank"));
  EXPECT_THAT(refusal([](RankEvidence* e) { e->processes[0].pid = -1; }),
              HasSubstr("evidence.processes[0].pid"));
  EXPECT_THAT(refusal([](RankEvidence* e) {
                e->processes[0].threads[0].frames[0].line = -1;
              }),
              HasSubstr("processes[0].threads[0].frames[0].line"));
  EXPECT_THAT(refusal([](RankEvidence* e) {
                e->readings["x"] = std::numeric_limits<double>::quiet_NaN();
              }),
              HasSubstr("evidence.readings"));
  EXPECT_THAT(refusal([](RankEvidence* e) {
                e->log_lines.assign(kMaxEvidenceLines + 1, "x");
              }),
              HasSubstr("evidence.log_lines"));
  EXPECT_THAT(refusal([](RankEvidence* e) {
                e->notes[0] = std::string(kMaxEvidenceText + 1, 'x');
              }),
              HasSubstr("evidence.notes"));
  EvidenceQuery query{7, "job", 2, {}, true, 0, std::chrono::minutes(1)};
  EXPECT_THAT(Message(FromProto(ToProto(query)).status()),
              HasSubstr("within: must be at most 30 s"));
  query.within = {};
  query.kept_uid = std::string(100, 'u');
  EXPECT_THAT(Message(FromProto(ToProto(query)).status()),
              HasSubstr("kept_uid"));
}

}  // namespace
}  // namespace lockstep
