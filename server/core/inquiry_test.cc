#include "server/core/inquiry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;

using Finding = Inquiry::Finding;

TEST(ChooseNeighboursTest, TwoOfItsPoolFirstAndOnOtherHosts) {
  const std::vector<Neighbour> ready = {{"a", "cpu", "10.0.0.1"},
                                        {"b", "gpu", "10.0.0.2"},
                                        {"c", "gpu", "10.0.0.2"},
                                        {"d", "gpu", "10.0.0.9"},
                                        {"e", "cpu", "10.0.0.5"}};
  EXPECT_THAT(ChooseNeighbours("gpu", "10.0.0.9", ready, 4),
              ElementsAre("b", "a"))
      << "c is on b's host, d on the silent node's";
  EXPECT_THAT(ChooseNeighbours("cpu", "10.0.0.7", ready, 5),
              ElementsAre("a", "e"));
}

TEST(ChooseNeighboursTest, TheOnlyOneThatIsThereIsAskedButInAPairOfHosts) {
  const std::vector<Neighbour> ready = {{"b", "p", "10.0.0.2"}};
  EXPECT_THAT(ChooseNeighbours("p", "10.0.0.1", ready, 3), ElementsAre("b"));
  EXPECT_THAT(ChooseNeighbours("p", "10.0.0.1", ready, 2), IsEmpty());
  EXPECT_THAT(ChooseNeighbours("p", "10.0.0.1", {}, 3), IsEmpty());
}

class InquiryTest : public testing::Test {
 protected:
  void Ask() { inquiry_.Begin(++id_, {"b", "c"}, Now()); }
  void Answer(const NodeName& who, bool reached,
              const std::string& error = "Connection timed out") {
    inquiry_.Take(id_, who, {"a", reached, reached ? "" : error}, Now());
  }
  MonoTime Now() { return clock_.Now().mono; }

  FakeClock clock_;
  Inquiry inquiry_;
  uint64_t id_ = 0;
};

TEST_F(InquiryTest, AllMustFailToReachIt) {
  EXPECT_TRUE(inquiry_.IsDue(Now()));
  Ask();
  EXPECT_FALSE(inquiry_.IsDue(Now()));
  Answer("b", false);
  EXPECT_EQ(inquiry_.finding(), Finding::kNone);
  clock_.Advance(600ms);
  Answer("c", false, "No route to host");
  EXPECT_EQ(inquiry_.finding(), Finding::kUnreachable);
  EXPECT_EQ(inquiry_.Describe(),
            "b (Connection timed out) and c (No route to host)");
}

TEST_F(InquiryTest, OneThatReachesItIsEnough) {
  Ask();
  Answer("c", true);
  EXPECT_EQ(inquiry_.finding(), Finding::kReached);
  Answer("b", false);
  EXPECT_EQ(inquiry_.finding(), Finding::kReached);
  clock_.Advance(5s - 1ms);
  EXPECT_FALSE(inquiry_.IsDue(Now()));
  clock_.Advance(1ms);
  EXPECT_TRUE(inquiry_.IsDue(Now())) << "it may have died since";
}

TEST_F(InquiryTest, WhoSaysNothingIsNoEvidence) {
  Ask();
  Answer("b", false);
  clock_.Advance(1s);
  EXPECT_EQ(inquiry_.finding(), Finding::kNone);
  EXPECT_TRUE(inquiry_.IsDue(Now()));
  clock_.Advance(1ms);
  Answer("c", false);
  EXPECT_EQ(inquiry_.finding(), Finding::kNone) << "too late";
  Ask();
  Answer("c", false);
  EXPECT_EQ(inquiry_.finding(), Finding::kNone) << "b's answer was an old one";
}

TEST_F(InquiryTest, AnswersWithoutAQuestionCountAsNothing) {
  inquiry_.Take(0, "b", {"a", false, ""}, Now());
  Ask();
  inquiry_.Take(id_ + 1, "b", {"a", false, ""}, Now());
  Answer("stranger", true);
  Answer("b", false);
  Answer("b", true);
  Answer("b", false);
  EXPECT_EQ(inquiry_.finding(), Finding::kNone);
  Answer("c", false);
  EXPECT_EQ(inquiry_.finding(), Finding::kUnreachable);
}

TEST_F(InquiryTest, AFindingStandsUntilTheNext) {
  Ask();
  const MonoTime first = Now();
  Answer("b", false);
  Answer("c", false);
  clock_.Advance(500ms);
  Ask();
  EXPECT_EQ(inquiry_.finding(), Finding::kUnreachable);
  EXPECT_EQ(inquiry_.asked_at(), first) << "what is proven since then counts";
  Answer("b", false);
  EXPECT_EQ(inquiry_.asked_at(), first);
  Answer("c", true);
  EXPECT_EQ(inquiry_.finding(), Finding::kReached);
  EXPECT_EQ(inquiry_.asked_at(), Now());
}

TEST_F(InquiryTest, WithoutNeighboursItIsTriedAgainLater) {
  inquiry_.Begin(1, {}, Now());
  EXPECT_EQ(inquiry_.finding(), Finding::kNone);
  EXPECT_FALSE(inquiry_.IsDue(Now()));
  clock_.Advance(1s);
  EXPECT_TRUE(inquiry_.IsDue(Now()));
  EXPECT_EQ(inquiry_.finding(), Finding::kNone);
}

}  // namespace
}  // namespace lockstep::server
