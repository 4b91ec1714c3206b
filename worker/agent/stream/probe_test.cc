#include "worker/agent/stream/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace lockstep::worker::agent {
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

// No host answers in a network for documentation (RFC 5737): no route, or time
// out.
TEST(ProbeTest, WhoIsNotThereIsNotReachedWithinTheTime) {
  const MonoTime begun = MonotonicNow();
  const auto results =
      Probe({{"b", "192.0.2.77", 9}, {"c", "no address", 9}}, 200ms);
  EXPECT_FALSE(results[0].reached);
  EXPECT_NE(results[0].error, "");
  EXPECT_FALSE(results[1].reached);
  EXPECT_THAT(results[1].error, HasSubstr("not an IP address"));
  EXPECT_LT(MonotonicNow() - begun, 20s);
}

// How many connections full queues have dropped: the number below the word
// ListenDrops.
std::string Drops() {
  std::ifstream file("/proc/net/netstat");
  std::string names;
  std::string numbers;
  std::getline(file, names);
  std::getline(file, numbers);
  std::istringstream name_words(names);
  std::istringstream number_words(numbers);
  std::string name;
  std::string number;
  while (name_words >> name && number_words >> number) {
    if (name == "ListenDrops") return number;
  }
  ADD_FAILURE() << "/proc/net/netstat has no ListenDrops";
  return "";
}

// Whose queue is full drops what comes, as a network does that loses packets,
// until there is room. Whether one that has room after the first packet was
// dropped is reached before the kernel would try again, which is after 1 s.
bool ReachedAfterALoss() {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const bytes = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), bytes, size), 0);
  EXPECT_EQ(listen(listener.get(), 0), 0);
  EXPECT_EQ(getsockname(listener.get(), bytes, &size), 0);
  const std::vector<ProbeTarget> target = {
      {"b", "127.0.0.1", ntohs(address.sin_port)}};
  int taken = 0;
  while (taken < 8 && Probe(target, 50ms)[0].reached) ++taken;
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 8) << "it takes all that comes";
  const std::string before = Drops();
  std::thread drain([&] {
    const MonoTime deadline = MonotonicNow() + 5s;
    while (Drops() == before && MonotonicNow() < deadline) {
    }
    for (int i = 0; i < taken; ++i) {
      const Fd one(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
  });
  const bool reached = Probe(target, 900ms)[0].reached;
  drain.join();
  return reached;
}

// On a machine that is busy the room may come too late.
TEST(ProbeTest, ALostPacketIsNoAbsence) {
  bool reached = false;
  for (int i = 0; i < 5 && !reached; ++i) reached = ReachedAfterALoss();
  EXPECT_TRUE(reached);
}

TEST(ProbeTest, NoTargetsNoResults) { EXPECT_THAT(Probe({}, 1s), IsEmpty()); }

TEST(ProbeTest, AnAddressThatIsNotHereSaysSo) {
  const auto listener = ProbeListener::Listen("192.0.2.77");
  ASSERT_FALSE(listener.ok());
  EXPECT_THAT(Message(listener.status()), HasSubstr("192.0.2.77"));
}

}  // namespace
}  // namespace lockstep::worker::agent
