// For the tests of this folder: ranks over shared memory.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_SHM_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_SHM_TEST_UTIL_H_

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "worker/collective/address_range.h"
#include "worker/collective/shm/shm_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective::shm {

inline constexpr Duration kLong = std::chrono::seconds(30);

inline CommunicatorOptions ShmOptions(int rank, int size,
                                      RendezvousStore* store) {
  CommunicatorOptions options = TestOptions(rank, size, store);
  options.backend = "shm";
  options.key = "the key of this generation";
  return options;
}

// Forms `n` ranks as threads and runs fn(communicator) on each.
inline void WithRanks(int n, const std::function<void(Communicator*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(n, [&](int rank) {
    auto communicator = FormShm(ShmOptions(rank, n, &store));
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    fn(communicator->get());
  });
}

inline Operation Floats(const Buffer* buffer, size_t count) {
  return {.slice = {buffer, 0, count, DataType::kFloat32}};
}

// Forms `n` ranks as threads, then seen from one thread.
inline FormedRanks ShmRanks(int n) {
  FormedRanks ranks(n, [n](int rank, RendezvousStore* store) {
    return FormShm(ShmOptions(rank, n, store));
  });
  EXPECT_TRUE(ranks.status().ok()) << ranks.status();
  return ranks;
}

// Ranks that are processes.
class ShmProcessTest : public ::testing::Test {
 protected:
  RankBoard board_;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_SHM_TEST_UTIL_H_
