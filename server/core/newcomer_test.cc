// A daemon that registers beside another one of its name whose stream is open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/membership.h"
#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

constexpr Incarnation kLiving{1, 11};
constexpr Incarnation kNewcomer{2, 22};

class NewcomerTest : public testing::Test {
 protected:
  NewcomerTest() {
    EXPECT_TRUE(Register(kLiving).ok());
    copy_ = Node(kNewcomer);
    copy_.boot_id = "another host's";
  }
  static NodeInfo Node(Incarnation incarnation) {
    NodeInfo info;
    info.name = "a";
    info.incarnation = incarnation;
    return info;
  }
  Status Register(Incarnation incarnation) {
    return members_.Register(Node(incarnation), clock_.Now());
  }
  Judgement Judge(const Newcomer& newcomer, bool connected = true) {
    return members_.Judge(newcomer, connected, clock_.Now().mono);
  }

  FakeClock clock_;
  Membership members_{MembershipOptions()};
  NodeInfo copy_;
};

TEST_F(NewcomerTest, WithoutABeatOfTheOtherItTakesOverAfterASecond) {
  const Newcomer newcomer = {Node(kNewcomer), clock_.Now().mono};
  EXPECT_TRUE(members_.IsNewcomer(newcomer.info));
  EXPECT_FALSE(members_.IsNewcomer(Node(kLiving))) << "the same process";
  clock_.Advance(1s - 1ns);
  EXPECT_EQ(Judge(newcomer), Judgement::kOpen);
  EXPECT_EQ(Judge(newcomer, false), Judgement::kAdmitted) << "at once";
  clock_.Advance(1ns);
  EXPECT_EQ(Judge(newcomer), Judgement::kAdmitted);
}

TEST_F(NewcomerTest, OneBeatIsProofAgainstADaemonOfAnotherBoot) {
  Newcomer newcomer = {copy_, clock_.Now().mono};
  EXPECT_EQ(Judge(newcomer), Judgement::kOpen);
  newcomer.other_beat = true;
  EXPECT_EQ(Judge(newcomer), Judgement::kRefused);
  EXPECT_EQ(Judge(newcomer, false), Judgement::kRefused)
      << "its stream ended since: it was restarted meanwhile";
}

// The last beats of a daemon that was killed may be read after the next one
// registered; then comes the end of its stream.
TEST_F(NewcomerTest, ALateBeatDoesNotKeepOutARestart) {
  Newcomer newcomer = {Node(kNewcomer), clock_.Now().mono};
  newcomer.other_beat = true;
  EXPECT_EQ(Judge(newcomer), Judgement::kOpen);
  EXPECT_EQ(Judge(newcomer, false), Judgement::kAdmitted);
  clock_.Advance(1s);
  EXPECT_EQ(Judge(newcomer), Judgement::kRefused) << "a copy on one host";
}

TEST_F(NewcomerTest, AProvenContestIsAQuarantineThatKeepsTheCopyOut) {
  EXPECT_TRUE(members_.Contest(copy_, clock_.Now(), /*proven=*/true));
  EXPECT_FALSE(members_.Find("a")->TakesWork());
  const Newcomer newcomer = {copy_, clock_.Now().mono};
  clock_.Advance(1s);
  EXPECT_EQ(Judge(newcomer), Judgement::kRefused) << "a cut of a second";
  EXPECT_EQ(Judge(newcomer, false), Judgement::kRefused);
  const Status barred = members_.CheckBarred(copy_, clock_.Now().mono);
  EXPECT_EQ(ReasonOf(barred), "CLONED_NODE");
  EXPECT_THAT(Message(barred), HasSubstr("lockstep nodes undrain a"));
  EXPECT_TRUE(members_.CheckBarred(Node(kNewcomer), clock_.Now().mono).ok())
      << "the admitted one's host";
  clock_.Advance(59s + 1ns);
  EXPECT_TRUE(members_.CheckBarred(copy_, clock_.Now().mono).ok());
}

TEST_F(NewcomerTest, AnEarlierStartOfAnotherBootIsTheCopyToo) {
  ASSERT_TRUE(Register(kNewcomer).ok());
  EXPECT_EQ(ReasonOf(members_.CheckRegister(Node(kLiving))),
            "STALE_INCARNATION");
  NodeInfo earlier = Node(kLiving);
  earlier.boot_id = copy_.boot_id;
  EXPECT_EQ(ReasonOf(members_.CheckRegister(earlier)), "CLONED_NODE");
}

}  // namespace
}  // namespace lockstep::server
