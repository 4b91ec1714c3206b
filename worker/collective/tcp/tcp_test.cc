// What the tcp backend computes, against float64, and how it forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "worker/collective/periodic_test_util.h"
#include "worker/collective/tcp/combine.h"
#include "worker/collective/tcp/congestion_test_util.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/tcp_test_util.h"

namespace lockstep::worker::collective::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

using tcp::TcpOptions;
using tcp::WithRanks;

// A plan by which large transfers go over three connections.
std::string ThreeStreams(int ranks) {
  tcp::Plan plan = tcp::MakePlan(ranks, tcp::HostSharing::kAll);
  plan.chunk = tcp::kSegment;
  plan.streams = 3;
  plan.ahead = 5;
  return ranks == 1 ? "" : tcp::PlanLine(plan, ranks);
}

void Store(DataType type, double value, void* to, size_t index) {
  const auto narrow = static_cast<float>(value);
  switch (type) {
    case DataType::kFloat32:
      static_cast<float*>(to)[index] = narrow;
      return;
    case DataType::kFloat64:
      static_cast<double*>(to)[index] = value;
      return;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      tcp::Narrow(type, &narrow, static_cast<uint16_t*>(to) + index, 1);
      return;
    case DataType::kInt32:
      static_cast<int32_t*>(to)[index] = static_cast<int32_t>(value);
      return;
    case DataType::kInt64:
      static_cast<int64_t*>(to)[index] = static_cast<int64_t>(value);
      return;
    case DataType::kUint8:
      static_cast<uint8_t*>(to)[index] = static_cast<uint8_t>(value);
      return;
    case DataType::kInt8:
      static_cast<int8_t*>(to)[index] = static_cast<int8_t>(value);
      return;
    case DataType::kInt16:
      static_cast<int16_t*>(to)[index] = static_cast<int16_t>(value);
      return;
  }
}

double Load(DataType type, const void* from, size_t index) {
  switch (type) {
    case DataType::kFloat32:
      return static_cast<const float*>(from)[index];
    case DataType::kFloat64:
      return static_cast<const double*>(from)[index];
    case DataType::kFloat16:
    case DataType::kBfloat16: {
      float value = 0;
      tcp::Widen(type, static_cast<const uint16_t*>(from) + index, &value, 1);
      return value;
    }
    case DataType::kInt32:
      return static_cast<const int32_t*>(from)[index];
    case DataType::kInt64:
      return static_cast<double>(static_cast<const int64_t*>(from)[index]);
    case DataType::kUint8:
      return static_cast<const uint8_t*>(from)[index];
    case DataType::kInt8:
      return static_cast<const int8_t*>(from)[index];
    case DataType::kInt16:
      return static_cast<const int16_t*>(from)[index];
  }
  return 0;
}

// Whole numbers, the same in every run, that every type holds and whose sums
// of 8 float32 holds: all results are exact before the last rounding.
constexpr size_t kPeriod = 30;
double Input(int rank, size_t i) {
  return static_cast<double>(
      (i * 7 + static_cast<size_t>(rank) * 13) % kPeriod + 1);
}

double Expected(DataType type, ReduceOp op, int n, size_t i) {
  double result = Input(0, i);
  for (int rank = 1; rank < n; ++rank) {
    const double next = Input(rank, i);
    if (op == ReduceOp::kMin) {
      result = std::min(result, next);
    } else if (op == ReduceOp::kMax) {
      result = std::max(result, next);
    } else {
      result += next;
    }
  }
  if (op == ReduceOp::kMean) {
    // 16-bit means are float32 before they are rounded.
    result = Is16Bit(type) ? static_cast<float>(result) / static_cast<float>(n)
                           : result / n;
  }
  // As the type holds it.
  alignas(8) char bytes[8];
  Store(type, result, bytes, 0);
  return Load(type, bytes, 0);
}

// Of `count` elements of `rank`.
void StoreInputs(DataType type, int rank, void* data, size_t count) {
  FillPeriodic(data, SizeOf(type), count, kPeriod,
               [&](size_t i) { Store(type, Input(rank, i), data, i); });
}

// want(i) is what element i must be.
template <typename Want>
void ExpectElements(DataType type, const void* data, size_t first, size_t end,
                    const Want& want) {
  const size_t wrong =
      FirstWrong(data, SizeOf(type), first, end, kPeriod,
                 [&](size_t i) { return Load(type, data, i) == want(i); });
  ASSERT_EQ(wrong, end) << Name(type) << " " << Load(type, data, wrong)
                        << " instead of " << want(wrong);
}

void CheckReduction(Communicator* c, DataType type, ReduceOp op, size_t count) {
  // Not aligned to more than an element.
  const size_t offset = 3;
  auto buffer = c->Allocate((count + offset) * SizeOf(type));
  ASSERT_TRUE(buffer.ok());
  void* const data =
      static_cast<char*>((*buffer)->data) + offset * SizeOf(type);
  Operation operation{.slice = {*buffer, offset, count, type}, .op = op};
  const auto want = [&](size_t i) { return Expected(type, op, c->size(), i); };
  StoreInputs(type, c->rank(), data, count);
  Status status = collective::Run(c, operation, tcp::kLong);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_NO_FATAL_FAILURE(ExpectElements(type, data, 0, count, want));
  if (count % c->size() != 0) return;
  operation.kind = CollectiveKind::kReduceScatter;
  StoreInputs(type, c->rank(), data, count);
  status = collective::Run(c, operation, tcp::kLong);
  ASSERT_TRUE(status.ok()) << status;
  const size_t part = count / c->size();
  ASSERT_NO_FATAL_FAILURE(ExpectElements(type, data, c->rank() * part,
                                         (c->rank() + 1) * part, want));
}

void CheckMoves(Communicator* c, DataType type, size_t part) {
  const size_t count = part * c->size();
  auto buffer = c->Allocate(count * SizeOf(type));
  ASSERT_TRUE(buffer.ok());
  const Slice slice{*buffer, 0, count, type};
  void* const data = (*buffer)->data;
  for (int root = 0; root < c->size(); ++root) {
    StoreInputs(type, c->rank(), data, count);
    ASSERT_TRUE(
        collective::Run(
            c,
            {.kind = CollectiveKind::kBroadcast, .slice = slice, .root = root},
            tcp::kLong)
            .ok());
    ASSERT_NO_FATAL_FAILURE(ExpectElements(type, data, 0, count, [&](size_t i) {
      return Input(root, i);
    })) << root;
  }
  std::memset(data, 0x55, count * SizeOf(type));
  char* const bytes = static_cast<char*>(data);
  const size_t part_bytes = part * SizeOf(type);
  StoreInputs(type, c->rank(), bytes + c->rank() * part_bytes, part);
  ASSERT_TRUE(
      collective::Run(c, {.kind = CollectiveKind::kAllGather, .slice = slice},
                      tcp::kLong)
          .ok());
  for (int rank = 0; rank < c->size(); ++rank) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectElements(type, bytes + rank * part_bytes, 0, part,
                       [&](size_t i) { return Input(rank, i); }))
        << rank;
  }
}

// The thread sanitizer makes them ten times as slow.
#if defined(__SANITIZE_THREAD__)
constexpr size_t kCountsOfEachType[] = {5, 840, 16800};
#else
constexpr size_t kCountsOfEachType[] = {5, 840, 16800, 33600, 168000};
#endif

class TcpEverySize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TcpEverySize, ::testing::Range(1, 9));

TEST_P(TcpEverySize, ReductionsEqualFloat64) {
  WithRanks(GetParam(), [](Communicator* c) {
    EXPECT_EQ(c->backend(), "tcp");
    // Through every algorithm; odd ones and multiples of all numbers of ranks.
    for (const size_t count : {0, 1, 2, 7, 1680, 5041, 40320, 300007, 840000}) {
      if (kSanitized && count > 400'000) continue;
      CheckReduction(c, DataType::kFloat32, ReduceOp::kSum, count);
    }
    for (const DataType type :
         {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
          DataType::kBfloat16, DataType::kInt32, DataType::kInt64,
          DataType::kUint8}) {
      const bool floats = type <= DataType::kBfloat16;
      for (const ReduceOp op :
           {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
        if (op == ReduceOp::kMean && !floats) continue;
        for (const size_t count : kCountsOfEachType) {
          CheckReduction(c, type, op, count);
        }
      }
    }
    // Beyond one block of 16-bit operands.
    CheckReduction(c, DataType::kFloat16, ReduceOp::kSum, 840001);
  });
}

TEST_P(TcpEverySize, MovesAreExact) {
  WithRanks(GetParam(), [](Communicator* c) {
    for (const size_t part : {1, 12, 5040, 150001}) {
      CheckMoves(c, DataType::kFloat32, part);
    }
    CheckMoves(c, DataType::kUint8, 5041);
    CheckMoves(c, DataType::kBfloat16, 33);
  });
}

TEST_P(TcpEverySize, EqualsFloat64OverSeveralConnections) {
  const auto check = [](Communicator* c) {
    for (const size_t count : {7, 5041, 40320, 300007, 840000}) {
      if (kSanitized && count > 400'000) continue;
      CheckReduction(c, DataType::kFloat32, ReduceOp::kSum, count);
    }
    CheckReduction(c, DataType::kInt64, ReduceOp::kMax, 168000);
    CheckReduction(c, DataType::kFloat16, ReduceOp::kMean, 840001);
    CheckMoves(c, DataType::kFloat32, 5040);
    CheckMoves(c, DataType::kUint8, 150001);
  };
  WithRanks(GetParam(), check, ThreeStreams(GetParam()));
}

TEST_P(TcpEverySize, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  const int n = GetParam();
  WithRanks(n, [&](Communicator* c) {
    for (int round = 1; round <= 20; ++round) {
      if (c->rank() == round % n) std::this_thread::yield();
      arrived.fetch_add(1);
      ASSERT_TRUE(
          collective::Run(c, {.kind = CollectiveKind::kBarrier}, tcp::kLong)
              .ok());
      ASSERT_GE(arrived.load(), round * n);
    }
  });
}

// Values whose float32 sum depends on the order of the operands.
std::vector<std::string> SumOfRough(int n, size_t count, DataType type,
                                    const std::string& plan = "") {
  std::vector<std::string> results(n);
  const auto sum = [&](Communicator* c) {
    auto buffer = c->Allocate(count * SizeOf(type));
    ASSERT_TRUE(buffer.ok());
    std::mt19937 random(7 + c->rank());
    std::normal_distribution<float> normal;
    FillPeriodic((*buffer)->data, SizeOf(type), count, 5 * 1009, [&](size_t i) {
      Store(type, normal(random) * std::pow(10.f, i % 5), (*buffer)->data, i);
    });
    const Status status =
        collective::Run(c, {.slice = {*buffer, 0, count, type}}, tcp::kLong);
    ASSERT_TRUE(status.ok()) << status;
    results[c->rank()].assign(static_cast<char*>((*buffer)->data),
                              count * SizeOf(type));
  };
  WithRanks(n, sum, plan);
  return results;
}

TEST_P(TcpEverySize, SameBitsOnAllRanksAndInEveryRun) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16}) {
    for (const size_t count : {1001, 20001, 300001}) {
      const auto first = SumOfRough(GetParam(), count, type);
      const auto second = SumOfRough(GetParam(), count, type);
      // Nor does it matter how many connections there are.
      const auto third =
          SumOfRough(GetParam(), count, type, ThreeStreams(GetParam()));
      for (int rank = 0; rank < GetParam(); ++rank) {
        EXPECT_EQ(first[rank], first[0]) << count;
        EXPECT_EQ(second[rank], first[0]) << count;
        EXPECT_EQ(third[rank], first[0]) << count;
      }
    }
  }
}

TEST_P(TcpEverySize, NaNInfinityAndDenormalsStay) {
  WithRanks(GetParam(), [](Communicator* c) {
    constexpr float kLeast = std::numeric_limits<float>::denorm_min();
    const int n = c->size();
    auto buffer = c->Allocate(2'500'000);
    ASSERT_TRUE(buffer.ok());
    float* const data = static_cast<float*>((*buffer)->data);
    // Through every algorithm, and at both ends of what is reduced.
    for (const size_t count : {20, 9000, 40320, 600001}) {
      if (kSanitized && count > 400'000) continue;
      for (const ReduceOp op :
           {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kSum, ReduceOp::kMean}) {
        std::fill(data, data + count, 1.0f);
        // Element r from either end is NaN on rank r alone.
        data[c->rank()] = std::nanf("");
        data[count - 1 - static_cast<size_t>(c->rank())] = std::nanf("");
        // Next to them; those of every rank, whose mean is the same.
        data[n] = kLeast;
        data[n + 1] = c->rank() == n - 1 ? -INFINITY : 5;
        const Operation operation = {
            .slice = {*buffer, 0, count, DataType::kFloat32}, .op = op};
        const Status status = collective::Run(c, operation, tcp::kLong);
        ASSERT_TRUE(status.ok()) << status;
        for (int r = 0; r < n; ++r) {
          EXPECT_TRUE(std::isnan(data[r])) << r << " of " << count;
          EXPECT_TRUE(std::isnan(data[count - 1 - static_cast<size_t>(r)]))
              << r << " of " << count;
        }
        EXPECT_EQ(data[n], op == ReduceOp::kSum ? kLeast * n : kLeast) << count;
        const bool greatest = op == ReduceOp::kMax && n > 1;
        EXPECT_EQ(data[n + 1], greatest ? 5 : -INFINITY) << count;
      }
    }
  });
}

TEST(TcpTest, ManyRanksTravelWithFewConnections) {
  WithRanks(19, [](Communicator* c) {
    CheckReduction(c, DataType::kFloat32, ReduceOp::kSum, 19 * 50);
    CheckReduction(c, DataType::kFloat32, ReduceOp::kSum, 19 * 4001);
    CheckReduction(c, DataType::kFloat32, ReduceOp::kSum, 190001);
    CheckReduction(c, DataType::kBfloat16, ReduceOp::kMean, 19 * 2000);
    CheckReduction(c, DataType::kBfloat16, ReduceOp::kSum, 190001);
    CheckMoves(c, DataType::kFloat32, 100);
    CheckMoves(c, DataType::kFloat32, 8001);
  });
}

TEST(TcpTest, ReducesMemoryOfTheCallers) {
  WithRanks(2, [](Communicator* c) {
    std::vector<float> mine(100001, 1.5f);
    auto buffer = c->Register(mine.data(), mine.size() * 4);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_TRUE(
        collective::Run(c, {.slice = {*buffer, 1, 100000, DataType::kFloat32}},
                        tcp::kLong)
            .ok());
    EXPECT_EQ(mine[0], 1.5f);
    EXPECT_EQ(mine[1], 3.0f);
    EXPECT_EQ(mine[100000], 3.0f);
    auto odd = c->Register(reinterpret_cast<char*>(mine.data()) + 2, 4000);
    ASSERT_TRUE(odd.ok());
    EXPECT_THAT(
        Message(collective::Run(c, {.slice = {*odd, 0, 4, DataType::kFloat32}},
                                tcp::kLong)),
        HasSubstr("aligned"));
    Buffer strange = **buffer;
    EXPECT_EQ(
        collective::Run(c, {.slice = {&strange, 0, 1, DataType::kFloat32}},
                        tcp::kLong)
            .code(),
        StatusCode::kInvalidArgument);
    EXPECT_FALSE(c->Register(nullptr, 4).ok());
  });
}

TEST(TcpTest, BucketsMayBeInFlightTogether) {
  WithRanks(3, [](Communicator* c) {
    std::vector<const Buffer*> buffers;
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < 20; ++i) {
      auto buffer = c->Allocate(400000);
      ASSERT_TRUE(buffer.ok());
      buffers.push_back(*buffer);
      static_cast<float*>((*buffer)->data)[99999] = c->rank() + i;
      auto work = c->Start({.slice = {*buffer, 0, 100000, DataType::kFloat32}});
      ASSERT_TRUE(work.ok());
      works.push_back(std::move(*work));
    }
    // Behind those that are queued.
    EXPECT_TRUE(
        collective::Run(c, {.kind = CollectiveKind::kBarrier}, tcp::kLong)
            .ok());
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(works[i]->Poll());
      ASSERT_TRUE(works[i]->Wait(MonotonicNow()).ok());
      EXPECT_EQ(static_cast<float*>(buffers[i]->data)[99999], 3 + 3 * i);
    }
  });
}

TEST(TcpTest, SaysWhatItDoes) {
  WithRanks(
      3, [](Communicator* c) { EXPECT_THAT(c->Plan(), HasSubstr("tcp: ")); });
}

TEST(TcpFormTest, RefusesWhatCannotWork) {
  MapRendezvousStore store;
  const auto expect = [&](CommunicatorOptions options, const char* text) {
    const Status status = FormTcp(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Message(status), HasSubstr(text));
  };
  expect(TcpOptions(2, 2, &store), "rank 2");
  expect(TcpOptions(0, 2, nullptr), "rendezvous");
  auto options = TcpOptions(0, 2, &store);
  options.bind_address = "0.0.0.0";
  expect(options, "every address");
  options.bind_address = "localhost";
  expect(options, "not an IP address");
  options.bind_address = "192.0.2.1";
  expect(options, "cannot bind to 192.0.2.1");
}

TEST(TcpFormTest, WithoutAThreadThereIsNoCommunicator) {
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  // No thread gets a stack of this size.
  pthread_attr_t huge;
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const auto formed = FormTcp(TcpOptions(0, 1, nullptr));
  EXPECT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(formed.status().code(), StatusCode::kResourceExhausted)
      << formed.status();
  EXPECT_THAT(Message(formed.status()), HasSubstr("no thread to reduce in"));
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

TEST(TcpFormTest, MissingPeersAreNamedAtTheDeadline) {
  MapRendezvousStore store;
  // Ranks 1 and 3 of four never come.
  SpawnRanks(2, [&](int i) {
    auto options = TcpOptions(2 * i, 4, &store);
    const MonoTime start = MonotonicNow();
    options.forming_deadline = start + seconds(1);
    const Status status = FormTcp(options).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("job test g1"), HasSubstr("rank 1, 3 ")));
    EXPECT_LT(MonotonicNow() - start, seconds(5));
  });
  MapRendezvousStore empty;
  auto options = TcpOptions(1, 2, &empty);
  options.forming_deadline = MonotonicNow() + milliseconds(100);
  EXPECT_THAT(Message(FormTcp(options).status()), HasSubstr("rank 0 did not"));
}

TEST(TcpFormTest, WorksOverIpv6) {
  MapRendezvousStore store;
  std::atomic<int> formed{0};
  std::atomic<int> without{0};
  SpawnRanks(3, [&](int rank) {
    auto options = TcpOptions(rank, 3, &store);
    options.bind_address = "::1";
    auto c = FormTcp(options);
    if (!c.ok() && absl::IsInvalidArgument(c.status())) {
      ++without;
      return;
    }
    ASSERT_TRUE(c.ok()) << c.status();
    ++formed;
    EXPECT_TRUE(collective::Run(c->get(), {.kind = CollectiveKind::kBarrier},
                                tcp::kLong)
                    .ok());
  });
  if (without == 3) GTEST_SKIP() << "this host has no IPv6 loopback";
  EXPECT_EQ(formed, 3);
}

TEST(TcpFormTest, WithinAHostConnectionsAreNotPaced) {
  if (tcp::UsualControl() == "reno") GTEST_SKIP() << "this system has Reno";
  WithRanks(2, [](Communicator* communicator) {
    ASSERT_TRUE(collective::Run(communicator, tcp::kBarrier, tcp::kLong).ok());
    // Both ranks are of this process, and still there.
    EXPECT_EQ(tcp::CountConnections()["reno"], 2);
    ASSERT_TRUE(collective::Run(communicator, tcp::kBarrier, tcp::kLong).ok());
  });
}

TEST(TcpFormTest, WrongWordsInTheStoreAreAnError) {
  for (const char* value :
       {"", "LTCP1 1 3 127.0.0.1 80 x", "LTCP1 1 2 localhost 80 x",
        "LTCP1 1 2 127.0.0.1 0 x", "LTCP1 1 2 127.0.0.1 99999 x", "\n\n\n",
        "LTCP9 1 2 127.0.0.1 80 x"}) {
    MapRendezvousStore store;
    ASSERT_TRUE(store.Put("tcp/place/1", value).ok());
    const Status status = FormTcp(TcpOptions(0, 2, &store)).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  }
  for (const char* value :
       {"", "LTCP1 table 1\n", "LTCP1 table 99999999\nx", "LTCP1 table x\n",
        "LTCP1 table 1\ntcp ranks=2 doubling=0 halving=0 chunk=65408 ahead=1 "
        "mesh=4 "
        "streams=1\nabc\nLTCP1 0 2 127.0.0.1 9 x\n"}) {
    MapRendezvousStore store;
    ASSERT_TRUE(store.Put("tcp/table/0", value).ok());
    const Status status = FormTcp(TcpOptions(1, 2, &store)).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition)
        << status << " for " << value;
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
