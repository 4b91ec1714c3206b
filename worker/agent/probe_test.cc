#include "worker/agent/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(ProbeTest, AListenerIsReachedAndTakesWhoComes) {
  for (const char* const address : {"127.0.0.1", "::1"}) {
    auto listener = ProbeListener::Listen(address);
    if (!listener.ok() && std::string(address) == "::1") continue;
    ASSERT_TRUE(listener.ok()) << Message(listener.status());
    const ProbeTarget target{"b", address, (*listener)->port()};
    const auto results = Probe({target, target}, 5s);
    ASSERT_THAT(results, SizeIs(2));
    EXPECT_TRUE(results[0].reached) << results[0].error;
    EXPECT_TRUE(results[1].reached) << results[1].error;
    EXPECT_EQ(results[0].node, "b");
    pollfd ready{(*listener)->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 5000), 1);
    (*listener)->Dispatch();
    EXPECT_EQ(poll(&ready, 1, 0), 0) << "both were taken";
  }
}

// The daemon is away, perhaps for a moment; the host and its ranks are there.
TEST(ProbeTest, AHostThatRefusesIsReached) {
  int port = 0;
  {
    auto listener = ProbeListener::Listen("127.0.0.1");
    ASSERT_TRUE(listener.ok());
    port = (*listener)->port();
  }
  const auto results = Probe({{"b", "127.0.0.1", port}}, 5s);
  EXPECT_TRUE(results[0].reached) << results[0].error;
}

// Nobody answers in a network for documentation (RFC 5737): no route, or time
// out.
TEST(ProbeTest, WhoIsNotThereIsNotReachedWithinTheTime) {
  const MonoTime begun = SystemClock().Now().mono;
  const auto results =
      Probe({{"b", "192.0.2.77", 9}, {"c", "no address", 9}}, 200ms);
  EXPECT_FALSE(results[0].reached);
  EXPECT_NE(results[0].error, "");
  EXPECT_FALSE(results[1].reached);
  EXPECT_THAT(results[1].error, HasSubstr("no IP address"));
  EXPECT_LT(SystemClock().Now().mono - begun, 20s);
}

TEST(ProbeTest, NoTargetsNoResults) { EXPECT_THAT(Probe({}, 1s), IsEmpty()); }

TEST(ProbeTest, AnAddressThatIsNotHereSaysSo) {
  const auto listener = ProbeListener::Listen("192.0.2.77");
  ASSERT_FALSE(listener.ok());
  EXPECT_THAT(Message(listener.status()), HasSubstr("192.0.2.77"));
}

}  // namespace
}  // namespace lockstep
