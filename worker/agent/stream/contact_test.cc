#include "worker/agent/stream/contact.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/agent/stream/probe.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// The daemon of node b, on a loop of its own thread.
class ContactTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create(&clock_);
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    auto listener = ProbeListener::Listen("127.0.0.1");
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    server_ = std::make_unique<ContactServer>("b", loop_.get());
    ASSERT_TRUE(loop_
                    ->Watch(listener_->fd(),
                            [this] {
                              listener_->Dispatch([this](Fd fd) {
                                server_->Take(std::move(fd));
                              });
                            })
                    .ok());
    thread_ = std::thread([this] { loop_->Run(); });
  }
  void TearDown() override {
    loop_->Stop();
    thread_.join();
    server_.reset();
  }
  ProbeTarget Target(const NodeName& node = "b") {
    return {node, "127.0.0.1", listener_->port()};
  }
  // On the loop's thread.
  Duration QuietOf(const NodeName& node) {
    std::promise<Duration> quiet;
    loop_->Post([&] { quiet.set_value(server_->QuietOf(node)); });
    return quiet.get_future().get();
  }

  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ProbeListener> listener_;
  std::unique_ptr<ContactServer> server_;
  std::thread thread_;
};

TEST_F(ContactTest, ANeighbourAnswersAndRemembers) {
  const MonoTime begun = MonotonicNow();
  EXPECT_TRUE(AskNeighbours("a", {Target()}, 5s));
  const Duration since_ask = MonotonicNow() - begun;
  const Duration quiet = QuietOf("a");
  EXPECT_LE(quiet, MonotonicNow() - begun);
  EXPECT_GE(QuietOf("c"), QuietOf("a")) << "c has asked nothing";
  EXPECT_GE(since_ask, Duration{});
}

TEST_F(ContactTest, OneOfThemIsEnough) {
  EXPECT_TRUE(AskNeighbours(
      "a", {{"x", "no address", 1}, {"y", "127.0.0.1", 1}, Target()}, 5s));
}

TEST_F(ContactTest, WhatAnswersAsAnotherNodeDoesNotCount) {
  EXPECT_FALSE(AskNeighbours("a", {Target("c")}, 5s));
}

TEST_F(ContactTest, ConnectionsWithoutAWordAreNoContact) {
  const auto results = Probe({Target()}, 5s);
  EXPECT_TRUE(results[0].reached);
  const Duration before = QuietOf("a");
  EXPECT_GE(QuietOf("a"), before);
  // Many that say nothing do not keep others away.
  std::vector<Fd> idle;
  for (int i = 0; i < 100; ++i) {
    int error = 0;
    idle.push_back(BeginConnection(Target(), &error));
  }
  EXPECT_TRUE(AskNeighbours("a", {Target()}, 5s));
}

TEST_F(ContactTest, NonsenseIsNotAnswered) {
  for (const std::string text : {"lockstep contact 1 \n", "GET / HTTP/1.1\r\n",
                                 "lockstep contact 1 No Node\n"}) {
    const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(listener_->port()));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                      sizeof(address)),
              0);
    ASSERT_EQ(send(fd.get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
    char buffer[64];
    EXPECT_LE(recv(fd.get(), buffer, sizeof(buffer), 0), 0) << text;
  }
}

// Its kernel takes connections, and the daemon does not run.
TEST(ContactOfAStoppedDaemonTest, IsNone) {
  auto listener = ProbeListener::Listen("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_FALSE(
      AskNeighbours("a", {{"b", "127.0.0.1", (*listener)->port()}}, 300ms));
}

}  // namespace
}  // namespace lockstep::worker::agent
