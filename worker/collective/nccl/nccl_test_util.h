// For tests of the nccl backend over a GPU in memory.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "worker/collective/nccl/nccl_communicator.h"
#include "worker/collective/nccl/nccl_fake.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective::nccl {

inline constexpr Duration kLong = std::chrono::seconds(20);
inline constexpr Duration kSoon = std::chrono::seconds(5);

inline CommunicatorOptions NcclOptions(int rank, int size,
                                       RendezvousStore* store) {
  CommunicatorOptions options = TestOptions(rank, size, store);
  options.backend = "nccl";
  options.device = 0;
  options.abort_timeout = std::chrono::milliseconds(200);
  return options;
}

// Ranks of one group, each formed on a thread of its own.
class NcclRanks {
 public:
  explicit NcclRanks(int n, const FakeGpuFaults& faults = {},
                     Duration operation_timeout = kLong)
      : formed_(n) {
    const GpuApi& api = ResetFakeGpu(faults);
    MapRendezvousStore store;
    SpawnRanks(n, [&](int rank) {
      CommunicatorOptions options = NcclOptions(rank, n, &store);
      options.operation_timeout = operation_timeout;
      auto formed = FormNccl(options, api);
      EXPECT_TRUE(formed.ok()) << formed.status();
      if (formed.ok()) formed_[rank] = *std::move(formed);
    });
  }
  // In good order, as ranks leave: all at once.
  void Leave() {
    SpawnRanks(static_cast<int>(formed_.size()),
               [&](int rank) { formed_[rank].reset(); });
  }
  Communicator* operator[](int rank) { return formed_[rank].get(); }
  std::unique_ptr<Communicator> Take(int rank) {
    return std::move(formed_[rank]);
  }
  void ForEach(const std::function<void(int, Communicator*)>& fn) {
    SpawnRanks(static_cast<int>(formed_.size()),
               [&](int rank) { fn(rank, formed_[rank].get()); });
  }

 private:
  std::vector<std::unique_ptr<Communicator>> formed_;
};

inline float* Floats(const Buffer* buffer) {
  return static_cast<float*>(buffer->data);
}

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_TEST_UTIL_H_
