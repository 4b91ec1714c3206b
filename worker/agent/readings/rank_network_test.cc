#include "worker/agent/readings/rank_network.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"

namespace lockstep::worker::agent {
namespace {

const RankRef kRank{{"job", 1}, 0};

// A child that opens `connections` to itself, sends `bytes` by each, and stays.
class Talker {
 public:
  Talker(int connections, size_t bytes) {
    int pipe_fds[2];
    EXPECT_EQ(pipe(pipe_fds), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char ok = Talk(connections, bytes) ? 'y' : 'n';
      (void)!write(pipe_fds[1], &ok, 1);
      while (true) pause();
    }
    char answer = 0;
    EXPECT_EQ(read(pipe_fds[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    close(pipe_fds[0]);
    close(pipe_fds[1]);
  }
  ~Talker() { End(); }
  Talker(const Talker&) = delete;
  Talker& operator=(const Talker&) = delete;

  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  static bool Talk(int connections, size_t bytes) {
    const int listening = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    if (bind(listening, any, size) != 0 || listen(listening, 128) != 0 ||
        getsockname(listening, any, &size) != 0) {
      return false;
    }
    const std::string out(bytes, 'x');
    std::string in(bytes, 0);
    for (int i = 0; i < connections; ++i) {
      const int client = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(client, any, size) != 0) return false;
      const int server = accept(listening, nullptr, nullptr);
      if (server < 0 ||
          send(client, out.data(), bytes, 0) != static_cast<ssize_t>(bytes) ||
          recv(server, in.data(), bytes, MSG_WAITALL) !=
              static_cast<ssize_t>(bytes)) {
        return false;
      }
    }
    return true;
  }

  pid_t pid_ = 0;
};

TEST(RankNetworkTest, CountsWhatTheSocketsOfAProcessCarried) {
  Talker talker(3, 20'000);
  Usage usage;
  RankNetwork network;
  network.Begin();
  network.Take(kRank, {talker.pid()}, &usage);
  network.End();
  ASSERT_TRUE(usage.network_received_bytes.has_value());
  EXPECT_NEAR(static_cast<double>(*usage.network_received_bytes), 60'000, 6);
  // Acknowledgements may be delayed.
  EXPECT_LE(*usage.network_sent_bytes, 60'006);
  EXPECT_GT(network.took(), Duration{});
}

TEST(RankNetworkTest, OfAProcessThatIsGoneNothingIsKnown) {
  Talker talker(1, 1000);
  const pid_t pid = talker.pid();
  talker.End();
  Usage usage;
  RankNetwork network;
  network.Begin();
  network.Take(kRank, {pid}, &usage);
  network.End();
  EXPECT_FALSE(usage.network_received_bytes.has_value());
}

TEST(RankNetworkTest, AfterARestartItContinuesFromWhatWasReported) {
  Usage usage;
  usage.network_sent_bytes = 5'000'000;
  usage.network_received_bytes = 7'000'000;
  Talker talker(1, 20'000);
  RankNetwork network;
  network.Adopt(kRank, usage);
  network.Begin();
  network.Take(kRank, {talker.pid()}, &usage);
  network.End();
  EXPECT_EQ(usage.network_sent_bytes, 5'000'000);
  EXPECT_EQ(usage.network_received_bytes, 7'000'000);
}

// The figure of docs/operations.md: 64 ranks with 1,000 sockets in all.
TEST(RankNetworkTest, TheCostOfManyRanks) {
  std::vector<std::unique_ptr<Talker>> talkers;
  for (int i = 0; i < 64; ++i) {
    talkers.push_back(std::make_unique<Talker>(8, 100));
  }
  RankNetwork network;
  int64_t received = 0;
  network.Begin();
  for (int32_t i = 0; i < 64; ++i) {
    Usage usage;
    network.Take({{"job", 1}, i}, {talkers[static_cast<size_t>(i)]->pid()},
                 &usage);
    received += usage.network_received_bytes.value_or(0);
  }
  network.End();
  EXPECT_GE(received, 64 * 8 * 100);
  std::cout << "64 ranks with 1,088 sockets: "
            << ToSeconds(network.took()) * 1e3 << " ms\n";
}

}  // namespace
}  // namespace lockstep::worker::agent
