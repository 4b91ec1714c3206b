// AnyMemory: operations on memory that comes and goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

constexpr Duration kWithin = std::chrono::seconds(30);
constexpr int32_t kMark = -77;

struct Setup {
  const char* backend;
  int ranks;
};

class AnyMemoryTest : public ::testing::TestWithParam<Setup> {};
INSTANTIATE_TEST_SUITE_P(Backends, AnyMemoryTest,
                         ::testing::Values(Setup{"self", 1}, Setup{"shm", 2},
                                           Setup{"shm", 3}, Setup{"tcp", 3},
                                           Setup{"hierarchical", 2},
                                           Setup{"hierarchical", 4}),
                         [](const auto& info) {
                           return fmt::format("{}{}", info.param.backend,
                                              info.param.ranks);
                         });

// Runs `kind` on new memory with other numbers around it, which stay. Ranks
// below `allocated` do so in memory of the communicator.
void CheckOne(Communicator* c, CollectiveKind kind, size_t count,
              int allocated) {
  constexpr size_t kAround = 5;
  std::vector<int32_t> memory(count + 2 * kAround, kMark);
  int32_t* const data = memory.data() + kAround;
  const auto any = c->AnyMemory();
  ASSERT_TRUE(any.ok()) << any.status();
  Operation operation{.kind = kind,
                      .slice = AnySlice(*any, data, count, DataType::kInt32)};
  const int n = c->size();
  const size_t part = count / n;
  std::fill(data, data + count, c->rank() + 1);
  if (c->rank() < allocated) {
    const auto buffer = c->Allocate(count * 4);
    ASSERT_TRUE(buffer.ok());
    operation.slice = {*buffer, 0, count, DataType::kInt32};
    std::copy(data, data + count, static_cast<int32_t*>((*buffer)->data));
  }
  ASSERT_EQ(collective::Run(c, operation, kWithin), OkStatus());
  if (c->rank() < allocated) {
    const auto* result =
        static_cast<const int32_t*>(operation.slice.buffer->data);
    std::copy(result, result + count, data);
  }
  for (size_t i = 0; i < count; ++i) {
    int32_t want = n * (n + 1) / 2;
    if (kind == CollectiveKind::kBroadcast) want = 1;
    if (kind == CollectiveKind::kAllGather) want = 1 + i / part;
    const bool mine =
        i / std::max<size_t>(part, 1) == static_cast<size_t>(c->rank());
    if (kind == CollectiveKind::kReduceScatter && !mine) continue;
    ASSERT_EQ(data[i], want) << Name(kind) << " of " << count << " at " << i;
  }
  for (size_t i = 0; i < kAround; ++i) {
    ASSERT_EQ(memory[i], kMark);
    ASSERT_EQ(data[count + i], kMark);
  }
}

TEST_P(AnyMemoryTest, EveryOperationRunsInPlace) {
  signal(SIGPIPE, SIG_IGN);
  const auto [backend, n] = GetParam();
  MapRendezvousStore store;
  SpawnRanks(n, [&, backend = backend, n = n](int rank) {
    auto c = FormCommunicator(TestOptionsOf(backend, rank, n, &store));
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(*(*c)->AnyMemory(), *(*c)->AnyMemory());
    for (const size_t parts : {0, 1, 30, 5'000, 60'000}) {
      for (const CollectiveKind kind :
           {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
            CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
        for (const int allocated : {0, 1, n}) {
          ASSERT_NO_FATAL_FAILURE(
              CheckOne(c->get(), kind, parts * n, allocated));
        }
      }
    }
  });
}

TEST_P(AnyMemoryTest, OwnMistakesAreRefused) {
  if (GetParam().ranks > 2) GTEST_SKIP() << "the same for more ranks";
  signal(SIGPIPE, SIG_IGN);
  const auto [backend, n] = GetParam();
  MapRendezvousStore store;
  SpawnRanks(n, [&, backend = backend, n = n](int rank) {
    auto c = FormCommunicator(TestOptionsOf(backend, rank, n, &store));
    ASSERT_TRUE(c.ok()) << c.status();
    // Not this communicator's.
    const Buffer other = AnyHostMemory();
    int32_t value = 1;
    Operation sum{.slice = AnySlice(&other, &value, 1, DataType::kInt32)};
    EXPECT_TRUE(
        absl::IsInvalidArgument(collective::Run(c->get(), sum, kWithin)));
    sum.slice.buffer = *(*c)->AnyMemory();
    sum.slice.count = SIZE_MAX / 4;
    EXPECT_TRUE(
        absl::IsInvalidArgument(collective::Run(c->get(), sum, kWithin)));
    sum.slice.count = 1;
    EXPECT_EQ(collective::Run(c->get(), sum, kWithin), OkStatus());
    EXPECT_EQ(value, n);
  });
}

}  // namespace
}  // namespace lockstep::worker::collective
