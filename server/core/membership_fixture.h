// For tests: a membership with one node, and a clock.
#ifndef LOCKSTEP_SERVER_CORE_MEMBERSHIP_FIXTURE_H_
#define LOCKSTEP_SERVER_CORE_MEMBERSHIP_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "server/core/membership.h"
#include "tests/support/fake_clock.h"

namespace lockstep::server {

class MembershipTest : public testing::Test {
 protected:
  static constexpr Incarnation kFirst{1, 11};
  static constexpr Incarnation kSecond{2, 22};

  static NodeInfo Node(Incarnation incarnation) {
    NodeInfo info;
    info.name = "a";
    info.incarnation = incarnation;
    return info;
  }
  Status Register(Incarnation incarnation) {
    return members_.Register(Node(incarnation), clock_.Now());
  }
  Status Beat(Incarnation incarnation) {
    return members_.Beat("a", incarnation, readings_, clock_.Now());
  }
  std::vector<NodeName> Expire(
      std::optional<Duration> patience = std::chrono::seconds(65)) {
    return members_.Expire(clock_.Now(),
                           [=](const NodeName&) { return patience; });
  }
  NodeState State() { return members_.Find("a")->state; }

  NodeReadings readings_ = [] {
    NodeReadings readings;
    readings.cpu_utilization = 0.5;
    readings.memory_available_bytes = 100;
    return readings;
  }();
  FakeClock clock_;
  Membership members_{
      MembershipOptions{std::chrono::seconds(3), std::chrono::seconds(65)}};
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_MEMBERSHIP_FIXTURE_H_
