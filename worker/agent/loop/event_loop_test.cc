#include "worker/agent/loop/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "common/os/process.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using testing::ElementsAre;

class EventLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create(&clock_);
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
  }
  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<int> seen_;
};

TEST_F(EventLoopTest, TimersRunInOrderOfTimeAndCancelledOnesDoNot) {
  const MonoTime now = clock_.Now().mono;
  loop_->At(now + 6ms, [&] {
    seen_.push_back(3);
    loop_->Stop();
  });
  loop_->At(now + 2ms, [&] { seen_.push_back(1); });
  const uint64_t never = loop_->At(now + 3ms, [&] { seen_.push_back(2); });
  loop_->CancelTimer(never);
  loop_->CancelTimer(never);
  loop_->Run();
  EXPECT_THAT(seen_, ElementsAre(1, 3));
}

TEST_F(EventLoopTest, PostedFromAnotherThreadRunsHereInOrder) {
  const auto here = std::this_thread::get_id();
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) {
      loop_->Post([&, i] {
        EXPECT_EQ(std::this_thread::get_id(), here);
        seen_.push_back(i);
        if (i == 99) loop_->Stop();
      });
    }
  });
  loop_->Run();
  other.join();
  ASSERT_EQ(seen_.size(), 100u);
  EXPECT_TRUE(std::is_sorted(seen_.begin(), seen_.end()));
}

TEST_F(EventLoopTest, ADescriptorIsWatchedUntilItIsNot) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  ASSERT_EQ(write(pipe->write.get(), "ab", 2), 2);
  ASSERT_TRUE(loop_
                  ->Watch(pipe->read.get(),
                          [&] {
                            char byte;
                            ASSERT_EQ(read(pipe->read.get(), &byte, 1), 1);
                            seen_.push_back(byte);
                            // From inside its own callback.
                            if (byte == 'b') {
                              loop_->Unwatch(pipe->read.get());
                              loop_->Stop();
                            }
                          })
                  .ok());
  loop_->Run();
  EXPECT_THAT(seen_, ElementsAre('a', 'b'));
}

TEST_F(EventLoopTest, ATimerSetByATimerDoesNotStarveTheRest) {
  int turns = 0;
  std::function<void()> again = [&] {
    if (++turns < 1000) loop_->At(clock_.Now().mono, again);
  };
  again();
  loop_->At(clock_.Now().mono, [&] { loop_->Stop(); });
  loop_->Run();
  EXPECT_LT(turns, 1000);
}

}  // namespace
}  // namespace lockstep::worker::agent
