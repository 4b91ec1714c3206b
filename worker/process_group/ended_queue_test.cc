#include "worker/process_group/ended_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lockstep::worker::process_group {
namespace {

using ::testing::ElementsAre;

std::vector<uint64_t> TakeUpTo(EndedQueue* queue, size_t most) {
  std::vector<uint64_t> cookies(most);
  const auto count = queue->Take(Duration::zero(), cookies);
  cookies.resize(count.ok() ? *count : 0);
  return cookies;
}

TEST(EndedQueueTest, GivesCookiesInTheOrderOfTheEnds) {
  EndedQueue queue;
  for (int i = 0; i < 3; ++i) queue.Expect();
  queue.Push(7);
  queue.Push(5);
  queue.Push(7);
  EXPECT_THAT(TakeUpTo(&queue, 2), ElementsAre(7, 5));
  EXPECT_THAT(TakeUpTo(&queue, 2), ElementsAre(7));
  EXPECT_THAT(TakeUpTo(&queue, 2), ElementsAre());
}

TEST(EndedQueueTest, IsOverOnceNoCookieIsLeftOrExpected) {
  EndedQueue queue;
  queue.Expect();
  queue.Expect();
  queue.Close();
  EXPECT_THAT(TakeUpTo(&queue, 2), ElementsAre());
  queue.Push(1);
  queue.Forget();
  EXPECT_THAT(TakeUpTo(&queue, 2), ElementsAre(1));
  std::vector<uint64_t> cookies(1);
  EXPECT_TRUE(absl::IsAborted(queue.Take(Duration(-1), cookies).status()));
}

TEST(EndedQueueTest, CloseEndsAWait) {
  EndedQueue queue;
  Status status;
  std::thread taker([&] {
    std::vector<uint64_t> cookies(1);
    status = queue.Take(Duration(-1), cookies).status();
  });
  queue.Close();
  queue.AwaitTakers();
  taker.join();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
}

}  // namespace
}  // namespace lockstep::worker::process_group
