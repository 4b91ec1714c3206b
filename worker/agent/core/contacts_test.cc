#include "worker/agent/core/contacts.h"

#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;

constexpr Fence kAny{4min, true};
constexpr Fence kOwn{48s, false};
constexpr int64_t kSecond = 1'000'000'000;

TEST(ContactsTest, TheLastAnswerCountsFromWhenItsQuestionWasSent) {
  Contacts contacts;
  EXPECT_EQ(contacts.Until(kAny), std::nullopt) << "an earlier time stands";
  contacts.OnCoordinator(100 * kSecond);
  EXPECT_EQ(contacts.Until(kAny), 340 * kSecond);
  EXPECT_EQ(contacts.Until(kOwn), 148 * kSecond);
  // Answers may come in another order.
  contacts.OnCoordinator(90 * kSecond);
  EXPECT_EQ(contacts.Until(kAny), 340 * kSecond);
}

TEST(ContactsTest, NeighboursCountOnlyWhereTheFenceSaysSo) {
  Contacts contacts;
  contacts.OnCoordinator(100 * kSecond);
  contacts.OnNeighbour(200 * kSecond);
  EXPECT_EQ(contacts.Until(kAny), 440 * kSecond);
  EXPECT_EQ(contacts.Until(kOwn), 148 * kSecond);
  Contacts alone;
  alone.OnNeighbour(10 * kSecond);
  EXPECT_EQ(alone.Until(kAny), 250 * kSecond);
  EXPECT_EQ(alone.Until(kOwn), std::nullopt);
}

TEST(ContactsTest, NeighboursAreAskedWhenTheCoordinatorIsLate) {
  Contacts contacts;
  EXPECT_TRUE(contacts.NeedsNeighbours(kAny, 0));
  contacts.OnCoordinator(100 * kSecond);
  EXPECT_FALSE(contacts.NeedsNeighbours(kAny, 130 * kSecond));
  EXPECT_TRUE(contacts.NeedsNeighbours(kAny, 131 * kSecond));
  EXPECT_FALSE(contacts.NeedsNeighbours(kOwn, 500 * kSecond));
  // An answer of a neighbour does not end it: another is needed in time.
  contacts.OnNeighbour(131 * kSecond);
  EXPECT_TRUE(contacts.NeedsNeighbours(kAny, 132 * kSecond));
}

TEST(ContactsTest, AStepIsASixteenthAndAtLeastASecond) {
  EXPECT_EQ(StepOf(kAny), 15s);
  EXPECT_EQ(StepOf({5s, true}), 1s);
}

}  // namespace
}  // namespace lockstep::worker::agent
