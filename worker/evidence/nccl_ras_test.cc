// Asking NCCL's RAS, with a server in its place.
#include "worker/evidence/nccl_ras.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "common/base/fd.h"

namespace lockstep::worker::evidence {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<SocketEvidence> Listening(const std::string& local) {
  return {{"tcp", "10.0.0.1:1", "10.0.0.2:28028", "ESTABLISHED", 0, 0},
          {"tcp", local, "0.0.0.0:0", "LISTEN", 0, 0}};
}

TEST(NcclRasTest, OnlyAProcessThatListensThereIsAsked) {
  const std::string none = "PATH=/bin";
  EXPECT_EQ(RasAddressOf(none, Listening("127.0.0.1:28028")),
            "127.0.0.1:28028");
  EXPECT_EQ(RasAddressOf(none, Listening("0.0.0.0:28028")), "127.0.0.1:28028");
  EXPECT_EQ(RasAddressOf(none, Listening("[::1]:28028")), "[::1]:28028");
  EXPECT_EQ(RasAddressOf(none, Listening("127.0.0.1:28029")), std::nullopt);
  const std::string other("PATH=/bin\0NCCL_RAS_ADDR=localhost:7\0A=b", 39);
  EXPECT_EQ(RasAddressOf(other, Listening("127.0.0.1:7")), "127.0.0.1:7");
  EXPECT_EQ(RasAddressOf(other, Listening("127.0.0.1:28028")), std::nullopt);
  const std::string off("NCCL_RAS_ENABLE=0\0A=b", 21);
  EXPECT_EQ(RasAddressOf(off, Listening("127.0.0.1:28028")), std::nullopt);
  EXPECT_EQ(RasAddressOf("NCCL_RAS_ADDR=", Listening("127.0.0.1:28028")),
            std::nullopt);
}

// Listens, and answers one question with `answer`; keeps the connection open
// until it is destroyed if `silent`.
class Server {
 public:
  explicit Server(std::string answer, bool silent = false)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this, answer = std::move(answer), silent] {
      Fd client(accept(listener_.get(), nullptr, nullptr));
      while (!question_.ends_with("STATUS\n")) {
        char buffer[100];
        const ssize_t count = read(client.get(), buffer, sizeof(buffer));
        if (count <= 0) return;
        question_.append(buffer, static_cast<size_t>(count));
      }
      EXPECT_EQ(write(client.get(), answer.data(), answer.size()),
                static_cast<ssize_t>(answer.size()));
      if (!silent) return;
      char byte = 0;
      EXPECT_EQ(read(client.get(), &byte, 1), 0);
    });
  }
  ~Server() { Join(); }
  const std::string& address() const { return address_; }
  std::string Join() {
    if (thread_.joinable()) thread_.join();
    return question_;
  }

 private:
  Fd listener_;
  std::string address_;
  std::string question_;
  std::thread thread_;
};

TEST(NcclRasTest, TheAnswerIsLines) {
  Server server("OK\nJob summary\n\n  2 ranks do not answer\nlast");
  const auto lines = AskNcclRas(server.address(), MonotonicNow() + 20s);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines,
              ElementsAre("Job summary", "  2 ranks do not answer", "last"));
  EXPECT_THAT(server.Join(),
              testing::MatchesRegex("TIMEOUT 1[0-9]\nVERBOSE STATUS\n"));
}

TEST(NcclRasTest, AnAnswerThatStopsIsCutAtTheDeadline) {
  Server server("OK\nJob summary\n", /*silent=*/true);
  const auto lines = AskNcclRas(server.address(), MonotonicNow() + 300ms);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines, ElementsAre("Job summary"));
}

TEST(NcclRasTest, SilenceAndRefusalAreSaid) {
  {
    Server server("", /*silent=*/true);
    const auto lines = AskNcclRas(server.address(), MonotonicNow() + 200ms);
    ASSERT_FALSE(lines.ok());
    EXPECT_THAT(Message(lines.status()), HasSubstr("did not answer"));
  }
  const auto refused = AskNcclRas("127.0.0.1:1", MonotonicNow() + 20s);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(Message(refused.status()), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace lockstep::worker::evidence
