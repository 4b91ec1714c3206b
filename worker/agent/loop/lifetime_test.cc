#include "worker/agent/loop/lifetime.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace lockstep::worker::agent {
namespace {

TEST(LifetimeTest, CallbacksRunUntilTheOwnerIsGone) {
  auto lifetime = std::make_unique<Lifetime>();
  int sum = 0;
  const std::function<void(int)> add =
      lifetime->Guard([&sum](int value) { sum += value; });
  add(2);
  EXPECT_EQ(sum, 2);
  lifetime.reset();
  add(3);
  EXPECT_EQ(sum, 2);
}

}  // namespace
}  // namespace lockstep::worker::agent
