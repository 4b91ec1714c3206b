// The kernels of nccl_kernels.cu, run by threads of the host: what they compute
// does not need a GPU to be seen.
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

// What the kernels need of CUDA. One block runs at a time, so what its threads
// share may be static.
#define __device__
#define __global__
#define __shared__ static
namespace lockstep::worker::collective::nccl {
namespace {
struct Index {
  unsigned x = 0;
};
thread_local Index threadIdx;
Index blockIdx;
Index gridDim;
std::barrier<>* block_barrier = nullptr;
void __syncthreads() { block_barrier->arrive_and_wait(); }
}  // namespace
}  // namespace lockstep::worker::collective::nccl

#include "worker/collective/nccl/nccl_kernels.cuh"

namespace lockstep::worker::collective::nccl {
namespace {

// Runs `kernel` for each thread of `blocks` blocks.
template <typename Kernel>
void Launch(int blocks, Kernel kernel) {
  std::barrier<> barrier(kThreads);
  block_barrier = &barrier;
  gridDim.x = static_cast<unsigned>(blocks);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      threadIdx.x = t;
      for (int block = 0; block < blocks; ++block) {
        if (t == 0) blockIdx.x = static_cast<unsigned>(block);
        __syncthreads();
        kernel();
        __syncthreads();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

double SumOfSquares(const std::vector<float>& data, int blocks) {
  std::vector<double> partials(blocks, std::nan(""));
  double sum = -1;
  Launch(blocks,
         [&] { SquaresByBlock(data.data(), data.size(), partials.data()); });
  Launch(1, [&] { SumPartials(partials.data(), blocks, &sum); });
  return sum;
}

TEST(NcclKernelsTest, SquaresAreAddedUpForEverySizeAndGrid) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const size_t count : {0, 1, 255, 256, 257, 1000, 4099}) {
    std::vector<float> data(count);
    double expected = 0;
    for (float& value : data) {
      value = normal(random);
      expected += double{value} * value;
    }
    for (const int blocks : {1, 2, 3}) {
      const double sum = SumOfSquares(data, blocks);
      EXPECT_NEAR(sum, expected, 1e-12 * expected) << count << " " << blocks;
      EXPECT_EQ(sum, SumOfSquares(data, blocks));  // To the bit.
    }
  }
}

TEST(NcclKernelsTest, ASumOfSquaresIsFiniteExactlyWhereAllElementsAre) {
  std::vector<float> data(600, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(SumOfSquares(data, 2)));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {0, 299, 599}) {
      data[at] = bad;
      EXPECT_FALSE(std::isfinite(SumOfSquares(data, 2))) << bad << " " << at;
      data[at] = 1;
    }
  }
}

TEST(NcclKernelsTest, EachElementIsAddedOnceForEverySizeAndGrid) {
  for (const size_t count : {0, 1, 255, 256, 257, 1000, 4099}) {
    for (const int blocks : {1, 2, 3}) {
      // One more behind them, which must stay.
      std::vector<float> to(count + 1), from(count + 1, 1e6f);
      for (size_t i = 0; i < count; ++i) {
        to[i] = static_cast<float>(i);
        from[i] = 0.5f;
      }
      Launch(blocks, [&] { AddByElement(to.data(), from.data(), count); });
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(to[i], static_cast<float>(i) + 0.5f)
            << count << " " << blocks;
      }
      EXPECT_EQ(to[count], 0);
    }
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::nccl
