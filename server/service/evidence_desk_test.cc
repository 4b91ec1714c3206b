// One question to several nodes: when it is answered, and what is left out.
#include "server/service/evidence_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class CountingPeer final : public StreamPeer {
 public:
  void Wake() override { ++wakes; }
  bool IsCancelled() const override { return false; }
  void Cancel() override {}
  int wakes = 0;
};

class EvidenceDeskTest : public testing::Test {
 protected:
  // Keeps what is sent to the node.
  EvidenceDesk::Connection Connect(const NodeName& node) {
    return desk_.Connect(
        node, [this, node](const EvidenceQuery& q) { sent_[node] = q; });
  }
  void Begin(const std::vector<NodeName>& nodes) {
    std::map<NodeName, EvidenceQuery> queries;
    for (const NodeName& node : nodes) queries[node].job = "j";
    collection_.emplace(&desk_, queries, &peer_);
  }
  EvidenceAnswer AnswerOf(const NodeName& node, int32_t rank, bool last) {
    EvidenceAnswer answer;
    answer.id = sent_.at(node).id;
    answer.evidence.emplace();
    answer.evidence->rank = rank;
    answer.last = last;
    return answer;
  }

  EvidenceDesk desk_;
  CountingPeer peer_;
  std::map<NodeName, EvidenceQuery> sent_;
  std::optional<EvidenceDesk::Collection> collection_;
};

TEST_F(EvidenceDeskTest, ItEndsWithTheLastAnswerOfTheLastNode) {
  const auto a = Connect("a");
  const auto b = Connect("b");
  Begin({"a", "b"});
  EXPECT_NE(sent_.at("a").id, sent_.at("b").id);
  EXPECT_EQ(sent_.at("a").within, desk_.options().within);
  desk_.OnAnswer(a, AnswerOf("a", 0, false));
  desk_.OnAnswer(a, AnswerOf("a", 1, true));
  EXPECT_FALSE(collection_->Done());
  EXPECT_EQ(peer_.wakes, 0);
  desk_.OnAnswer(b, AnswerOf("b", 2, true));
  EXPECT_EQ(peer_.wakes, 1);
  ASSERT_TRUE(collection_->Done());
  const EvidenceDesk::Collected collected = collection_->Take();
  ASSERT_EQ(collected.ranks.size(), 3u);
  EXPECT_EQ(collected.ranks[0].node, "a");
  EXPECT_EQ(collected.ranks[2].node, "b");
  EXPECT_THAT(collected.notes, IsEmpty());
  // What comes late is dropped.
  desk_.OnAnswer(b, AnswerOf("b", 3, true));
}

TEST_F(EvidenceDeskTest, OnlyTheNodeThatWasAskedAnswers) {
  const auto a = Connect("a");
  const auto b = Connect("b");
  Begin({"a"});
  desk_.OnAnswer(b, AnswerOf("a", 0, true));
  EXPECT_FALSE(collection_->Done());
  desk_.OnAnswer(a, AnswerOf("a", 0, true));
  EXPECT_TRUE(collection_->Done());
}

TEST_F(EvidenceDeskTest, SilentBrokenAndUnwillingNodesAreNoted) {
  const auto b = Connect("b");
  const auto c = Connect("c");
  Begin({"a", "b", "c"});
  desk_.Disconnect(b);
  EvidenceAnswer refusal;
  refusal.id = sent_.at("c").id;
  refusal.status = Unavailable("it is busy");
  desk_.OnAnswer(c, refusal);
  ASSERT_TRUE(collection_->Done());
  EXPECT_THAT(collection_->Take().notes,
              UnorderedElementsAre("node a is silent",
                                   HasSubstr("node b: its connection broke"),
                                   "node c: it is busy"));
  // Nothing is asked, so nothing is waited for.
  Begin({"a"});
  EXPECT_TRUE(collection_->Done());
}

TEST_F(EvidenceDeskTest, AfterTheDeadlineWhatCameCounts) {
  EvidenceDeskOptions options;
  options.within = options.reserve = Duration{};
  EvidenceDesk desk(options);
  desk.Connect("a", [](const EvidenceQuery&) {});
  EvidenceDesk::Collection collection(&desk, {{"a", EvidenceQuery()}}, &peer_);
  EXPECT_TRUE(collection.Done());
  EXPECT_THAT(collection.Take().notes,
              ElementsAre(HasSubstr("node a did not answer within")));
}

TEST_F(EvidenceDeskTest, ACollectionThatIsGoneIsNotTouched) {
  const auto a = Connect("a");
  Begin({"a"});
  const EvidenceAnswer answer = AnswerOf("a", 0, true);
  collection_.reset();
  desk_.OnAnswer(a, answer);
  desk_.Disconnect(a);
  EXPECT_EQ(peer_.wakes, 0);
}

}  // namespace
}  // namespace lockstep::server
