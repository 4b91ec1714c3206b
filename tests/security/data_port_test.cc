// Strangers at the TCP ports of ranks that form their group: garbage, silence,
// and connections that close at once. The ranks form all the same, and reduce
// right sums.
#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/handshake.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kPortRanks = 2;

enum Exit : int { kAllWell = 0, kNotFormed = 20, kNoHandshake = 21, kWrong };

// Says where its rank listens only after a while, so that a stranger comes
// between. Its first word is what it can do.
class SlowStore final : public RendezvousStore {
 public:
  explicit SlowStore(RendezvousStore* store) : store_(store) {}
  Status Put(const std::string& key, std::string_view value) override {
    if (puts_++ > 0) ::usleep(150'000);
    return store_->Put(key, value);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    return store_->Get(key, deadline);
  }

 private:
  RendezvousStore* const store_;
  int puts_ = 0;
};

// `patience` is that of each phase.
int BeRank(int rank, RendezvousStore* store, Duration patience) {
  signal(SIGPIPE, SIG_IGN);
  CommunicatorOptions options = TestOptions(rank, kPortRanks, store);
  options.backend = "tcp";
  options.key = "the key of this generation";
  options.forming_deadline = MonotonicNow() + patience;
  auto communicator = FormCommunicator(options);
  if (!communicator.ok()) return kNotFormed;
  HandshakeOptions shake;
  shake.label = "job test g3";
  shake.generation = 3;
  shake.spec_hash = "abcdef";
  shake.key = "the key of this generation";
  if (!Handshake(communicator->get(), shake, MonotonicNow() + patience).ok()) {
    return kNoHandshake;
  }
  const auto buffer = (*communicator)->Allocate(4 * sizeof(float));
  if (!buffer.ok()) return kWrong;
  auto* const values = static_cast<float*>((*buffer)->data);
  for (int i = 0; i < 4; ++i) values[i] = static_cast<float>(rank + i);
  const Status sum = Run(
      communicator->get(),
      {.kind = CollectiveKind::kAllReduce, .slice = {*buffer, 0, 4}}, patience);
  if (!sum.ok()) return kNoHandshake;
  for (int i = 0; i < 4; ++i) {
    if (values[i] != static_cast<float>(2 * i + 1)) return kWrong;
  }
  return kAllWell;
}

std::set<std::string> SocketInodes(pid_t pid) {
  std::set<std::string> inodes;
  std::error_code error;
  const auto dir = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string link =
        std::filesystem::read_symlink(entry.path(), error).string();
    if (link.starts_with("socket:[")) {
      inodes.insert(link.substr(8, link.size() - 9));
    }
  }
  return inodes;
}

// Ports at which the process listens (/proc/net/tcp, state 0A).
std::set<uint16_t> ListeningPorts(pid_t pid) {
  const std::set<std::string> inodes = SocketInodes(pid);
  std::set<uint16_t> ports;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, uid,
        timeout, inode;
    words >> number >> local >> remote >> state >> queues >> timer >>
        retransmits >> uid >> timeout >> inode;
    if (state != "0A" || !inodes.contains(inode)) continue;
    ports.insert(static_cast<uint16_t>(
        std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

Fd ConnectTo(uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                sizeof(address)) != 0) {
    return Fd();
  }
  return fd;
}

struct Stranger {
  const char* name;
  std::string bytes;
  bool stays;
};

class DataPortTest : public testing::TestWithParam<Stranger> {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-port-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

TEST_P(DataPortTest, AStrangerHindersNoRank) {
  const Stranger& stranger = GetParam();
  int met = 0;
  DirectoryRendezvousStore store(dir_);
  RankProcesses ranks(kPortRanks, [&](int rank) {
    SlowStore slow(&store);
    return BeRank(rank,
                  rank == 1 ? &slow : static_cast<RendezvousStore*>(&store),
                  seconds(20));
  });
  std::vector<Fd> held;
  std::set<uint16_t> seen;
  // Until they have formed, and in any case until they listen.
  const MonoTime until = MonotonicNow() + milliseconds(600);
  while (MonotonicNow() < until ||
         (met == 0 && MonotonicNow() < until + seconds(15))) {
    // Not more of the machine than the ranks get.
    ::usleep(2'000);
    for (int rank = 0; rank < kPortRanks; ++rank) {
      for (const uint16_t port : ListeningPorts(ranks.pid(rank))) {
        if (!seen.insert(port).second) continue;
        Fd fd = ConnectTo(port);
        if (!fd) continue;
        ++met;
        (void)!::send(fd.get(), stranger.bytes.data(), stranger.bytes.size(),
                      MSG_NOSIGNAL);
        if (stranger.stays) held.push_back(std::move(fd));
      }
    }
  }
  for (int rank = 0; rank < kPortRanks; ++rank) {
    EXPECT_EQ(ranks.Join(rank, MonotonicNow() + seconds(90)), kAllWell) << rank;
  }
  EXPECT_GT(met, 0) << "no rank listened: the test tests nothing";
}

INSTANTIATE_TEST_SUITE_P(
    Strangers, DataPortTest,
    testing::Values(Stranger{"silence", "", true},
                    Stranger{"garbage", std::string(4096, '\xff'), true},
                    Stranger{"zeros", std::string(4096, '\0'), true},
                    Stranger{"leaves", "", false},
                    Stranger{"http", "GET / HTTP/1.0\r\n\r\n", false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep::worker::collective
