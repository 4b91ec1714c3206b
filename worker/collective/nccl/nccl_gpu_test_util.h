// For tests on a real GPU: two ranks, each a process with a host of its own by
// NCCL_HOSTID, so that one GPU is enough. A test skips, with the reason, where
// NCCL cannot be used.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_GPU_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_GPU_TEST_UTIL_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "worker/collective/address_range.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective::nccl {

inline constexpr int kGpuRanks = 2;
// Creating contexts on a busy GPU can take long.
inline constexpr Duration kGpuForming = std::chrono::seconds(90);

class GpuRanksTest : public ::testing::Test {
 protected:
  // Seen by parent and children.
  struct Shared {
    std::atomic<int> steps[kGpuRanks];
    std::atomic<int64_t> nanoseconds;
    char why[512];
  };

  void SetUp() override {
    char path[] = "/tmp/nccl-gpu-XXXXXX";
    dir_ = ::mkdtemp(path);
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared();
  }
  void TearDown() override {
    ::munmap(shared_, sizeof(Shared));
    std::filesystem::remove_all(dir_);
  }

  // In a child: forms a communicator as `rank`. The ranks of one meet in a
  // folder of their own.
  StatusOr<std::unique_ptr<Communicator>> Form(
      int rank, const std::string& folder = "first",
      AddressRange* addresses = nullptr, int size = kGpuRanks) {
    ::signal(SIGPIPE, SIG_IGN);
    ::setenv("NCCL_HOSTID", fmt::format("rank-{}", rank).c_str(), 1);
    std::filesystem::create_directories(dir_ + "/" + folder);
    DirectoryRendezvousStore store(dir_ + "/" + folder);
    CommunicatorOptions options = TestOptions(rank, size, &store);
    options.backend = "nccl";
    options.device = 0;
    options.forming_deadline = MonotonicNow() + kGpuForming;
    options.addresses = addresses;
    return FormCommunicator(options);
  }

  // In a child: forms the communicator of `rank`, which `body` gets and whose
  // exit code it returns; kSkip where there is no NCCL.
  template <typename Body>
  int Rank(int rank, Body body, const std::string& folder = "first",
           AddressRange* addresses = nullptr) {
    auto formed = Form(rank, folder, addresses);
    if (!formed.ok()) {
      fmt::format_to_n(shared_->why, sizeof(shared_->why) - 1, "{}",
                       Message(formed.status()));
      // A host that cannot; anything else is a failure.
      const bool cannot =
          formed.status().code() == StatusCode::kFailedPrecondition ||
          formed.status().code() == StatusCode::kNotFound;
      return cannot ? kSkip : 1;
    }
    const int code = body(*std::move(formed));
    return code != 0 || ::testing::Test::HasFailure() ? 1 : 0;
  }

  // Skips the test where a rank has.
  void JoinAll(RankProcesses* ranks, std::initializer_list<int> which) {
    for (const int rank : which) {
      const int code = ranks->Join(
          rank, MonotonicNow() + kGpuForming + std::chrono::seconds(60));
      if (code == kSkip) GTEST_SKIP() << shared_->why;
      EXPECT_EQ(code, 0) << "rank " << rank << ": " << shared_->why;
    }
  }

  static constexpr int kSkip = 77;
  std::string dir_;
  Shared* shared_ = nullptr;
};

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_GPU_TEST_UTIL_H_
