// Evidence about ranks: who may have it, and how the answers of nodes become
// one.
#include <gmock/gmock.h>

#include <thread>

#include "common/wire/evidence_wire.h"
#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EvidenceServiceTest : public ServiceTest {
 protected:
  StatusOr<v1::JobEvidence> Collect(
      const std::string& name, std::vector<int32_t> ranks = {},
      const std::string& user = "ann",
      pki::UserRole role = pki::UserRole::kSubmitter) {
    const auto stub = v1::JobService::NewStub(User(user, role));
    v1::CollectEvidenceRequest request;
    request.set_name(name);
    request.mutable_ranks()->Add(ranks.begin(), ranks.end());
    return Answer<v1::JobEvidence>([&](auto* context, auto* response) {
      return stub->CollectEvidence(context, request, response);
    });
  }
  static RankEvidence Evidence(int32_t rank) {
    RankEvidence evidence;
    evidence.rank = rank;
    evidence.node = "stranger";
    ProcessEvidence& process = evidence.processes.emplace_back();
    process.pid = 7;
    process.command = "python3";
    process.state = "S";
    process.stack_source = kPySpySource;
    ThreadEvidence& thread = process.threads.emplace_back();
    thread.main = true;
    thread.state = "S";
    thread.frames = {{"train", "load", "train.py", 88, false}};
    return evidence;
  }
  // Answers the next query with these ranks, and then `last`.
  std::thread Serve(DaemonStream* daemon, std::vector<RankEvidence> ranks,
                    Status last = OkStatus()) {
    return std::thread([=] {
      const auto message =
          daemon->Read(v1::CoordinatorMessage::kEvidenceRequest);
      ASSERT_TRUE(message.has_value());
      const auto query = FromProto(message->evidence_request());
      ASSERT_TRUE(query.ok()) << query.status();
      EXPECT_EQ(query->job, "j");
      EXPECT_THAT(query->ranks, ElementsAre(0));
      EXPECT_TRUE(query->stacks);
      EXPECT_GT(query->within, Duration{});
      EvidenceAnswer answer;
      answer.id = query->id;
      for (const RankEvidence& rank : ranks) {
        answer.evidence = rank;
        v1::WorkerMessage reply;
        *reply.mutable_evidence_reply() = ToProto(answer);
        daemon->Write(reply);
      }
      answer.evidence.reset();
      answer.last = true;
      answer.status = last;
      v1::WorkerMessage reply;
      *reply.mutable_evidence_reply() = ToProto(answer);
      daemon->Write(reply);
    });
  }
};

TEST_F(EvidenceServiceTest, TheNodesAnswerBecomesAVerdict) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  RunOn(&daemon, "j");
  // Of a rank that it was not asked for, and of one twice, nothing is taken.
  std::thread serves = Serve(&daemon, {Evidence(0), Evidence(5), Evidence(0)});
  const auto evidence = Collect("j");
  serves.join();
  ASSERT_TRUE(evidence.ok()) << evidence.status();
  EXPECT_EQ(evidence->verdict(), "rank 0 waits in load (train.py:88)");
  EXPECT_EQ(evidence->job(), "j");
  EXPECT_EQ(evidence->trigger(), "by hand");
  ASSERT_EQ(evidence->ranks_size(), 1);
  // It speaks for itself only.
  EXPECT_EQ(evidence->ranks(0).node(), "a");
  ASSERT_EQ(evidence->groups_size(), 1);
  EXPECT_THAT(evidence->groups(0).ranks(), ElementsAre(0));
}

TEST_F(EvidenceServiceTest, OnlyTheOwnerAndAdminsLook) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  RunOn(&daemon, "j");
  const Status stranger = Collect("j", {}, "bob").status();
  EXPECT_EQ(stranger.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(stranger), HasSubstr("stacks"));
  EXPECT_EQ(Collect("j", {}, "ann", pki::UserRole::kViewer).status().code(),
            StatusCode::kPermissionDenied);
  std::thread serves = Serve(&daemon, {Evidence(0)});
  EXPECT_TRUE(Collect("j", {}, "root", pki::UserRole::kAdmin).ok());
  serves.join();
}

TEST_F(EvidenceServiceTest, WhatCannotBeCollectedIsRefusedInASentence) {
  EXPECT_EQ(Collect("none").status().code(), StatusCode::kNotFound);
  MustSubmit("j");
  const Status waits = Collect("j").status();
  EXPECT_EQ(waits.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(waits), HasSubstr("QUEUED"));
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  RunOn(&daemon, "j");
  const Status unknown = Collect("j", {7}).status();
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(unknown), HasSubstr("has no rank 7"));
}

TEST_F(EvidenceServiceTest, OfAJobThatNeverStoodStillNothingIsKept) {
  MustSubmit("j");
  const auto stub = v1::JobService::NewStub(User("ann"));
  v1::CollectEvidenceRequest request;
  request.set_name("j");
  request.set_kept(true);
  const Status none =
      Answer<v1::JobEvidence>([&](auto* context, auto* response) {
        return stub->CollectEvidence(context, request, response);
      }).status();
  EXPECT_EQ(none.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(none), HasSubstr("stood still"));
}

TEST_F(EvidenceServiceTest, ARankWithoutAnAnswerIsNotGuessed) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  RunOn(&daemon, "j");
  std::thread serves = Serve(&daemon, {}, Unavailable("it is busy"));
  const auto evidence = Collect("j");
  serves.join();
  ASSERT_TRUE(evidence.ok()) << evidence.status();
  EXPECT_THAT(evidence->verdict(), HasSubstr("cannot be known"));
  EXPECT_EQ(evidence->cause_ranks_size(), 0);
  EXPECT_THAT(evidence->notes(), ElementsAre("node a: it is busy"));
}

}  // namespace
}  // namespace lockstep::server
