// The gloo backend as the reference: it refuses what Gloo would not notice, it
// leaves nothing behind, and the tcp backend says the same as it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/collective/testing.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;

constexpr Duration kLong = seconds(30);

void WithRanks(const std::string& backend, int n,
               const std::function<void(Communicator*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  // Who breaks at once would end those that are still forming.
  std::barrier all_formed(n);
  SpawnRanks(n, [&](int rank) {
    auto formed = FormCommunicator(TestOptionsOf(backend, rank, n, &store));
    all_formed.arrive_and_wait();
    ASSERT_TRUE(formed.ok()) << formed.status();
    fn(formed->get());
  });
}

// ---- Mismatches ----

// The last of `n` ranks runs another operation: all are refused long before
// the deadline, and somebody is told both words.
void ExpectRefused(int n, const std::function<Operation(const Buffer*)>& one,
                   const std::function<Operation(const Buffer*)>& other,
                   const std::vector<std::string>& words) {
  std::vector<Status> ends(n);
  std::atomic<int> out{0};
  const MonoTime start = MonotonicNow();
  WithRanks("gloo", n, [&](Communicator* c) {
    auto buffer = c->Allocate(1 << 16);
    const bool differs = c->rank() == n - 1;
    Status status =
        lockstep::Run(c, differs ? other(*buffer) : one(*buffer), seconds(20));
    // A root may have finished when it has sent.
    if (status.ok()) {
      status =
          lockstep::Run(c, {.kind = CollectiveKind::kBarrier}, seconds(20));
    }
    ends[c->rank()] = status;
    ++out;
    while (out < n && MonotonicNow() < start + kLong) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_LT(MonotonicNow() - start, seconds(10));
  int told = 0;
  for (const Status& end : ends) {
    EXPECT_THAT(end.code(), AnyOf(StatusCode::kFailedPrecondition,
                                  StatusCode::kUnavailable))
        << end;
    bool all = end.code() == StatusCode::kFailedPrecondition;
    for (const std::string& word : words) {
      all = all && Message(end).find(word) != std::string::npos;
    }
    told += all ? 1 : 0;
  }
  EXPECT_GE(told, 1) << ends[0] << "\n" << ends[n - 1];
}

Operation Reduce(const Buffer* b, size_t count, DataType type) {
  return {.slice = {b, 0, count, type}};
}

TEST(GlooMismatchTest, OfTypeCountKindOpAndRootIsRefused) {
  const auto sum = [](const Buffer* b) {
    return Reduce(b, 1000, DataType::kFloat32);
  };
  for (const int n : {2, 4}) {
    ExpectRefused(
        n, sum,
        [](const Buffer* b) { return Reduce(b, 1000, DataType::kInt32); },
        {"(sum) of 1000 float32", "(sum) of 1000 int32"});
    ExpectRefused(
        n, sum,
        [](const Buffer* b) { return Reduce(b, 500, DataType::kFloat32); },
        {"of 1000 float32", "of 500 float32"});
    ExpectRefused(n, sum,
                  [](const Buffer*) {
                    return Operation{.kind = CollectiveKind::kBarrier};
                  },
                  {"of 1000 float32", "barrier"});
    ExpectRefused(n, sum,
                  [&](const Buffer* b) {
                    Operation o = sum(b);
                    o.op = ReduceOp::kMax;
                    return o;
                  },
                  {"(sum)", "(max)"});
    const auto broadcast = [&](const Buffer* b) {
      Operation o = sum(b);
      o.kind = CollectiveKind::kBroadcast;
      return o;
    };
    ExpectRefused(n, broadcast,
                  [&](const Buffer* b) {
                    Operation o = broadcast(b);
                    o.root = 1;
                    return o;
                  },
                  {"from rank 0", "from rank 1"});
    // Nothing at all on one side.
    ExpectRefused(
        n, sum,
        [](const Buffer* b) { return Reduce(b, 0, DataType::kFloat32); },
        {"of 1000 float32", "of 0 float32"});
  }
}

// ---- The reference ----

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64,
                               DataType::kInt32, DataType::kInt64};

void Fill(void* data, DataType type, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<int64_t>((rank * 7 + i * 3) % 101) - 50;
    switch (type) {
      case DataType::kFloat32:
        static_cast<float*>(data)[i] = static_cast<float>(value);
        break;
      case DataType::kFloat64:
        static_cast<double*>(data)[i] = static_cast<double>(value);
        break;
      case DataType::kInt32:
        static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
        break;
      default:
        static_cast<int64_t*>(data)[i] = value;
    }
  }
}

// The results of each operation on each rank, one after the other: exact data,
// so no order of the sums shows. Means divide by a power of two.
std::vector<std::string> ResultsOf(const std::string& backend, int n) {
  std::vector<std::string> results(n);
  WithRanks(backend, n, [&](Communicator* c) {
    EXPECT_EQ(c->backend(), backend);
    std::string& result = results[c->rank()];
    const auto run = [&](Operation operation) {
      const Slice& slice = operation.slice;
      Fill(slice.buffer->data, slice.type, slice.count, c->rank());
      const Status status = lockstep::Run(c, operation, kLong);
      ASSERT_TRUE(status.ok()) << status;
      const size_t bytes = slice.count * SizeOf(slice.type);
      const bool scatter = operation.kind == CollectiveKind::kReduceScatter;
      const size_t part = bytes / c->size();
      const auto* const data = static_cast<const char*>(slice.buffer->data);
      result.append(data + (scatter ? c->rank() * part : 0),
                    scatter ? part : bytes);
    };
    for (const DataType type : kTypes) {
      for (const size_t parts : {0, 1, 3, 2003}) {
        const size_t count = parts * c->size();
        auto buffer = c->Allocate(count * SizeOf(type) + 64);
        ASSERT_TRUE(buffer.ok());
        const Slice slice{*buffer, 0, count, type};
        for (const ReduceOp op :
             {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
          run({.kind = CollectiveKind::kAllReduce, .slice = slice, .op = op});
          run({.kind = CollectiveKind::kReduceScatter,
               .slice = slice,
               .op = op});
        }
        run({.kind = CollectiveKind::kAllGather, .slice = slice});
        run({.kind = CollectiveKind::kBroadcast,
             .slice = slice,
             .root = c->size() - 1});
      }
    }
  });
  return results;
}

class ReferenceTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ReferenceTest, ::testing::Range(2, 9));

TEST_P(ReferenceTest, TcpSharedMemoryAndHierarchySayWhatGlooSays) {
  const int n = GetParam();
  const auto reference = ResultsOf("gloo", n);
  for (const char* backend : {"tcp", "shm", "hierarchical"}) {
    if (kSanitized && n > 4) continue;
    const auto results = ResultsOf(backend, n);
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_TRUE(results[rank] == reference[rank])
          << backend << ", rank " << rank << " of " << n;
    }
  }
}

// ---- Generations ----

TEST(GlooGenerationsTest, FiveHundredLeaveNothingBehind) {
  signal(SIGPIPE, SIG_IGN);
  const int generations = kSanitized ? 50 : 500;
  Usage first;
  for (int generation = 0; generation < generations; ++generation) {
    // Every other one ends by an abort of one rank.
    const bool aborts = generation % 2 == 1;
    WithRanks("gloo", 2, [&](Communicator* c) {
      const Operation sum =
          Reduce(c->Allocate(40'000).value(), 10'000, DataType::kFloat32);
      Status status = lockstep::Run(c, sum, kLong);
      // The abort may meet the other rank at the end of the operation.
      EXPECT_TRUE(status.ok() || aborts) << status;
      if (!aborts) return;
      if (c->rank() == generation / 2 % 2) {
        c->Abort("next");
      } else {
        while (status.ok()) status = lockstep::Run(c, sum, kLong);
      }
    });
    if (generation == generations / 10) first = UsageNow();
  }
  EXPECT_EQ(CheckNoGrowth(first), OkStatus());
}

}  // namespace
}  // namespace lockstep
