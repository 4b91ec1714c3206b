#include "server/coordinator/idempotency_cache.h"

#include <gmock/gmock.h>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

AnsweredRequest Answer(const std::string& client, int number,
                       size_t bytes = 1) {
  AnsweredRequest answer;
  answer.client = client;
  answer.id = std::to_string(number);
  answer.response = std::string(bytes, 'x');
  answer.time = WallTime(Duration(number));
  return answer;
}

TEST(IdempotencyCacheTest, ACallersOwnOldestGoes) {
  IdempotencyCache cache({.of_caller = 2});
  cache.Add(Answer("ann", 2));
  cache.Add(Answer("bob", 1));
  EXPECT_THAT(cache.Displaced(Answer("ann", 3)), IsEmpty());
  cache.Add(Answer("ann", 3));
  EXPECT_THAT(cache.Displaced(Answer("ann", 4)),
              ElementsAre(RequestName{"ann", "2"}));
  EXPECT_THAT(cache.Displaced(Answer("bob", 4)), IsEmpty());
}

TEST(IdempotencyCacheTest, TheOldestOfAllGoes) {
  IdempotencyCache cache({.of_caller = 2, .of_all = 3});
  for (int i = 1; i <= 2; ++i) cache.Add(Answer("ann", i));
  cache.Add(Answer("bob", 3));
  EXPECT_THAT(cache.Displaced(Answer("carl", 4)),
              ElementsAre(RequestName{"ann", "1"}));
  EXPECT_THAT(cache.Displaced(Answer("ann", 4)),
              ElementsAre(RequestName{"ann", "1"}))
      << "one is enough for both limits";
}

TEST(IdempotencyCacheTest, BytesCountToo) {
  IdempotencyCache cache({.bytes_of_caller = 1000, .bytes_of_all = 1500});
  for (int i = 1; i <= 3; ++i) cache.Add(Answer("ann", i, 300));
  EXPECT_THAT(cache.Displaced(Answer("ann", 4, 500)),
              ElementsAre(RequestName{"ann", "1"}, RequestName{"ann", "2"}));
  EXPECT_THAT(cache.Displaced(Answer("bob", 4, 700)),
              ElementsAre(RequestName{"ann", "1"}));
}

TEST(IdempotencyCacheTest, ForgetsByTimeAndByName) {
  IdempotencyCache cache({.of_caller = 3, .bytes_of_caller = 100});
  for (int i = 1; i <= 3; ++i) cache.Add(Answer("ann", i, 20));
  cache.Add(Answer("ann", 3, 30));  // Again.
  EXPECT_EQ(cache.Find("ann", "3")->response.size(), 30u);
  cache.ForgetBefore(WallTime(Duration(2)));
  EXPECT_EQ(cache.Find("ann", "1"), nullptr);
  EXPECT_NE(cache.Find("ann", "2"), nullptr);
  cache.Forget({"ann", "2"});
  cache.Forget({"ann", "2"});
  EXPECT_THAT(cache.Displaced(Answer("ann", 4, 40)), IsEmpty());
  cache.Forget({"ann", "3"});
  EXPECT_TRUE(cache.empty());
}

class AnswersTest : public CoordinatorTest {};

TEST_F(AnswersTest, ManyCommandsAreNotKeptForADay) {
  options_.limits.answers.of_caller = 2;
  Restart();
  for (int i = 1; i <= 3; ++i) {
    MustSubmit(NativeSpec(fmt::format("j{}", i), 1));
    clock_.Advance(std::chrono::seconds(1));
  }
  EXPECT_EQ(store_.Load()->requests.size(), 2u) << "the disk forgets it too";
  EXPECT_TRUE(Submit(NativeSpec("j2", 1)).ok()) << "a repeat";
  EXPECT_EQ(ReasonOf(Submit(NativeSpec("j1", 1)).status()), "JOB_EXISTS");
}

}  // namespace
}  // namespace lockstep::server
