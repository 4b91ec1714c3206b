// For the tests of this folder: ranks over TCP.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_TCP_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_TCP_TEST_UTIL_H_

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "worker/collective/tcp/tcp_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective::tcp {

// Bounds are far above what is measured (milliseconds), and far below the 30 s
// at which an operation would end by itself.
inline constexpr Duration kSoon = std::chrono::seconds(10);
inline constexpr Duration kLong = std::chrono::seconds(30);

// By `plan`, where it is not empty.
inline CommunicatorOptions TcpOptions(int rank, int size,
                                      RendezvousStore* store,
                                      const std::string& plan = "") {
  CommunicatorOptions options = TestOptions(rank, size, store);
  options.backend = "tcp";
  options.key = "the key of generation 1";
  options.reduction_plan = plan;
  return options;
}

// Forms `n` ranks as threads and runs fn(communicator) on each.
inline void WithRanks(int n, const std::function<void(Communicator*)>& fn,
                      const std::string& plan = "") {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(n, [&](int rank) {
    auto communicator = FormTcp(TcpOptions(rank, n, &store, plan));
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    fn(communicator->get());
  });
}

// Ranks seen from one thread.
class TcpRanks : public FormedRanks {
 public:
  explicit TcpRanks(int n, const std::string& plan = "")
      : FormedRanks(n, [&](int rank, RendezvousStore* store) {
          return FormTcp(TcpOptions(rank, n, store, plan));
        }) {
    EXPECT_TRUE(status().ok()) << status();
  }
};

inline Operation FloatsOf(Communicator* communicator, size_t count) {
  auto buffer = communicator->Allocate(count * 4);
  EXPECT_TRUE(buffer.ok());
  return {
      .slice = {buffer.ok() ? *buffer : nullptr, 0, count, DataType::kFloat32}};
}

inline constexpr Operation kBarrier = {.kind = CollectiveKind::kBarrier};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_TCP_TEST_UTIL_H_
