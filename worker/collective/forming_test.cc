// Forming past a few ranks, and who can reach a rank meanwhile.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "worker/collective/communicator.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/handshake.h"
#include "worker/collective/tcp/tcp_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

class CountingStore final : public RendezvousStore {
 public:
  Status Put(const std::string& key, std::string_view value) override {
    ++messages;
    bytes += value.size();
    return store_.Put(key, value);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    ++messages;
    auto value = store_.Get(key, deadline);
    if (value.ok()) bytes += value->size();
    return value;
  }

  std::atomic<int> messages{0};
  std::atomic<size_t> bytes{0};

 private:
  MapRendezvousStore store_;
};

// Sockets that this process has, by their inodes.
std::set<uint64_t> OwnSockets() {
  std::set<uint64_t> inodes;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target =
        std::filesystem::read_symlink(entry.path(), error).string();
    if (error || !target.starts_with("socket:[")) continue;
    inodes.insert(std::stoull(target.substr(8)));
  }
  return inodes;
}

struct Listening {
  std::string address;
  uint16_t port;
};

// Ports on which this process can be reached by IPv4.
std::vector<Listening> OwnListeners() {
  const std::set<uint64_t> own = OwnSockets();
  std::vector<Listening> listeners;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, skip;
    fields >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) fields >> skip;
    uint64_t inode = 0;
    fields >> inode;
    if (state != "0A" || own.count(inode) == 0) continue;
    in_addr address{};
    address.s_addr =
        static_cast<uint32_t>(std::stoul(local.substr(0, 8), nullptr, 16));
    listeners.push_back(
        {inet_ntoa(address),
         static_cast<uint16_t>(std::stoul(local.substr(9), nullptr, 16))});
  }
  return listeners;
}

int ConnectErrno(const char* address, uint16_t port) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, address, &to.sin_addr);
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0
             ? 0
             : errno;
}

TEST(DeafTest, AFormingRankListensOnItsAddressOnly) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  std::atomic<bool> looked{false};
  std::thread first([&] {
    auto formed = FormCommunicator(TestOptionsOf("tcp", 0, 2, &store));
    EXPECT_TRUE(formed.ok()) << formed.status();
    EXPECT_TRUE(collective::Run(formed->get(),
                                {.kind = CollectiveKind::kBarrier}, seconds(20))
                    .ok());
  });
  std::thread second([&] {
    // Rank 0 has a port and waits for this one, which has been as far as the
    // choice of the backend.
    class Late final : public RendezvousStore {
     public:
      Late(RendezvousStore* store, std::atomic<bool>* go)
          : store_(store), go_(go) {}
      Status Put(const std::string& key, std::string_view value) override {
        const MonoTime deadline = MonotonicNow() + seconds(20);
        while (key.find("backend/") == std::string::npos && !*go_ &&
               MonotonicNow() < deadline) {
          std::this_thread::sleep_for(milliseconds(1));
        }
        return store_->Put(key, value);
      }
      StatusOr<std::string> Get(const std::string& key,
                                MonoTime deadline) override {
        return store_->Get(key, deadline);
      }

     private:
      RendezvousStore* const store_;
      std::atomic<bool>* const go_;
    } late(&store, &looked);
    auto formed = FormCommunicator(TestOptionsOf("tcp", 1, 2, &late));
    EXPECT_TRUE(formed.ok()) << formed.status();
    EXPECT_TRUE(collective::Run(formed->get(),
                                {.kind = CollectiveKind::kBarrier}, seconds(20))
                    .ok());
  });
  std::vector<Listening> listeners;
  const MonoTime deadline = MonotonicNow() + seconds(15);
  while ((listeners = OwnListeners()).empty() && MonotonicNow() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(listeners.empty());
  for (const Listening& listener : listeners) {
    EXPECT_EQ(listener.address, "127.0.0.1");
    EXPECT_EQ(ConnectErrno("127.0.0.2", listener.port), ECONNREFUSED);
  }
  looked = true;
  first.join();
  second.join();
}

// Threads with small stacks, as long as it lives.
class SmallStacks {
 public:
  SmallStacks() {
    pthread_getattr_default_np(&before_);
    // A sanitizer keeps data of its own there.
    if (kSanitized) return;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    pthread_setattr_default_np(&small);
    pthread_attr_destroy(&small);
  }
  ~SmallStacks() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

bool RaiseFiles(rlim_t files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= files) return true;
  limit.rlim_cur = files;
  limit.rlim_max = std::max(limit.rlim_max, files);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

double Milliseconds(Duration time) {
  return static_cast<double>(
             duration_cast<std::chrono::microseconds>(time).count()) /
         1e3;
}

// Forms `n` ranks and lets them shake hands; asserts that nothing grows faster
// than n log n.
void FormMany(int n) {
  signal(SIGPIPE, SIG_IGN);
  const double log2 = std::log2(n);
  const size_t sockets_before = OwnSockets().size();
  CountingStore store;
  std::vector<Status> formed(n);
  std::vector<Status> shaken(n);
  std::atomic<int> here{0};
  std::atomic<int> counted{0};
  std::atomic<int> out{0};
  std::atomic<int64_t> shaken_at{0};
  MonoTime formed_at;
  MonoTime start_shaking;
  size_t sockets = 0;
  const MonoTime start = MonotonicNow();
  SpawnRanks(n, [&](int rank) {
    auto options = TestOptionsOf("tcp", rank, n, &store);
    options.forming_deadline = MonotonicNow() + seconds(60);
    options.key = "a key of this generation";
    auto communicator = tcp::FormTcp(options);
    formed[rank] = communicator.status();
    const auto meet = [n](std::atomic<int>* count) {
      ++*count;
      const MonoTime deadline = MonotonicNow() + seconds(60);
      while (*count < n && MonotonicNow() < deadline) {
        std::this_thread::sleep_for(milliseconds(5));
      }
    };
    meet(&here);
    if (rank == 0) {
      formed_at = MonotonicNow();
      sockets = OwnSockets().size() - sockets_before;
      start_shaking = MonotonicNow();
    }
    meet(&counted);
    if (communicator.ok()) {
      HandshakeOptions handshake;
      handshake.label = "job test g1";
      handshake.generation = 1;
      handshake.spec_hash = "abcdef";
      handshake.key = options.key;
      handshake.config["batch"] = "64";
      shaken[rank] = Handshake(communicator->get(), handshake,
                               MonotonicNow() + seconds(60));
      if (++out == n) shaken_at = MonotonicNow().time_since_epoch().count();
    }
  });
  int failed = 0;
  for (int rank = 0; rank < n; ++rank) {
    failed += formed[rank].ok() && shaken[rank].ok() ? 0 : 1;
    if (failed == 1) {
      EXPECT_TRUE(formed[rank].ok()) << rank << ": " << formed[rank];
      EXPECT_TRUE(shaken[rank].ok()) << rank << ": " << shaken[rank];
    }
  }
  ASSERT_EQ(failed, 0);
  const double per_rank = static_cast<double>(sockets) / n;
  printf(
      "%d ranks: formed in %.0f ms with %d messages of %.0f KiB in all, "
      "%.1f connections a rank; hands shaken in %.0f ms\n",
      n, Milliseconds(formed_at - start), store.messages.load(),
      static_cast<double>(store.bytes) / 1024, per_rank,
      Milliseconds(MonoTime(Duration(shaken_at.load())) - start_shaking));
  EXPECT_LE(per_rank, log2 + 2);
  EXPECT_GE(per_rank, 2);
  // A word and a look of each rank, and rank 0's looks.
  EXPECT_LE(store.messages, 4 * n);
}

TEST(ScaleTest, ConnectionsGrowByTheLogarithmMessagesWithTheRanks) {
  const SmallStacks stacks;
  FormMany(64);
  if (kSanitized) return;
  if (!RaiseFiles(16384)) GTEST_SKIP() << "no 16384 open files here";
  FormMany(512);
}

}  // namespace
}  // namespace lockstep::worker::collective
