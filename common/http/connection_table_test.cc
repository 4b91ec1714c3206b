#include "common/http/connection_table.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace lockstep::http {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::Optional;
using Phase = ConnectionPhase;

MonoTime At(int second) { return MonoTime(seconds(second)); }

ConnectionLimits Limits() {
  ConnectionLimits limits;
  limits.connections = 4;
  limits.connections_of_address = 3;
  limits.answer_bytes = 100;
  return limits;
}

TEST(ConnectionTableTest, AnAddressPaysForItsOwnNewcomers) {
  ConnectionTable table(Limits());
  const auto other = table.Add("b", At(0));
  const auto first = table.Add("a", At(1));
  table.Add("a", At(2));
  EXPECT_EQ(table.Evicted("a"), std::nullopt);
  table.Add("a", At(3));
  // Not the oldest of all, which is another address's.
  EXPECT_THAT(table.Evicted("a"), Optional(first));
  // The table is full: here it is.
  EXPECT_THAT(table.Evicted("c"), Optional(other));
  table.Remove(first);
  EXPECT_EQ(table.Evicted("a"), std::nullopt);
}

TEST(ConnectionTableTest, TheOneLongestInItsPhaseGoes) {
  ConnectionTable table(Limits());
  const auto first = table.Add("a", At(0));
  const auto second = table.Add("a", At(1));
  const auto third = table.Add("a", At(2));
  table.Enter(first, Phase::kHead, At(5), seconds(5));
  EXPECT_THAT(table.Evicted("a"), Optional(second));
  // One that waits for its handler is the last to go.
  table.Enter(second, Phase::kHandling, At(1), seconds(5));
  EXPECT_THAT(table.Evicted("a"), Optional(third));
  table.Enter(third, Phase::kHandling, At(2), seconds(5));
  EXPECT_THAT(table.Evicted("a"), Optional(first));
  table.Enter(first, Phase::kHandling, At(6), seconds(5));
  EXPECT_THAT(table.Evicted("a"), Optional(second));
}

TEST(ConnectionTableTest, APhaseEndsAtItsDeadline) {
  ConnectionTable table(Limits());
  EXPECT_EQ(table.NextDeadline(), MonoTime::max());
  const auto first = table.Add("a", At(0));
  const auto second = table.Add("a", At(0));
  table.Enter(first, Phase::kHead, At(0), seconds(5));
  table.Enter(second, Phase::kWriting, At(0), seconds(30));
  EXPECT_EQ(table.NextDeadline(), At(5));
  EXPECT_THAT(table.Overdue(At(4)), ElementsAre());
  EXPECT_THAT(table.Overdue(At(5)), ElementsAre(first));
  table.EndBy(second, At(40));
  EXPECT_THAT(table.Overdue(At(30)), ElementsAre(first, second));
  table.EndBy(second, At(2));
  EXPECT_EQ(table.NextDeadline(), At(2));
}

TEST(ConnectionTableTest, TheAnswerWrittenForLongestMakesRoomForOthers) {
  ConnectionTable table(Limits());
  const auto first = table.Add("a", At(0));
  const auto second = table.Add("b", At(0));
  table.Enter(second, Phase::kWriting, At(1), seconds(30));
  table.SetAnswerBytes(second, 60);
  EXPECT_EQ(table.TooMuchWritten(), std::nullopt);
  table.Enter(first, Phase::kWriting, At(2), seconds(30));
  table.SetAnswerBytes(first, 60);
  EXPECT_THAT(table.TooMuchWritten(), Optional(second));
  table.Remove(second);
  EXPECT_EQ(table.TooMuchWritten(), std::nullopt);
  // One answer may be as large as it is.
  table.SetAnswerBytes(first, 1000);
  EXPECT_EQ(table.TooMuchWritten(), std::nullopt);
  table.SetAnswerBytes(first, 0);
  const auto third = table.Add("c", At(3));
  table.SetAnswerBytes(third, 100);
  EXPECT_EQ(table.TooMuchWritten(), std::nullopt);
}

std::string Of(const char* address) {
  sockaddr_storage from = {};
  auto& in4 = reinterpret_cast<sockaddr_in&>(from);
  auto& in6 = reinterpret_cast<sockaddr_in6&>(from);
  if (::inet_pton(AF_INET, address, &in4.sin_addr) == 1) {
    in4.sin_family = AF_INET;
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, address, &in6.sin6_addr), 1) << address;
    in6.sin6_family = AF_INET6;
  }
  return CountedAs(from);
}

TEST(ConnectionTableTest, AHostOfIpv6IsItsNetwork) {
  EXPECT_NE(Of("10.0.0.1"), Of("10.0.0.2"));
  EXPECT_EQ(Of("::ffff:10.0.0.1"), Of("10.0.0.1"));
  EXPECT_NE(Of("::ffff:10.0.0.1"), Of("::ffff:10.0.0.2"));
  EXPECT_EQ(Of("2001:db8::1"), Of("2001:db8::ffff:0:0:2"));
  EXPECT_NE(Of("2001:db8::1"), Of("2001:db8:0:1::1"));
}

}  // namespace
}  // namespace lockstep::http
