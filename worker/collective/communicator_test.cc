// The arithmetic of every operation, what is refused, and forming.
#include "worker/collective/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/periodic_test_util.h"
#include "worker/collective/special_values_test_util.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Duration kLong = seconds(30);

// Forms `n` ranks as threads and runs fn(communicator) on each.
void WithRanks(int n, const std::function<void(Communicator*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(n, [&](int rank) {
    auto communicator = FormCommunicator(TestOptions(rank, n, &store));
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    fn(communicator->get());
  });
}

// Rank `rank`'s input, the same in every run, up to where it begins again: at
// no multiple of anything.
constexpr size_t kPeriod = 1009;
std::vector<double> Input(int rank) {
  std::mt19937_64 random(1000 + rank);
  std::uniform_real_distribution<double> uniform(-100, 100);
  std::vector<double> values(kPeriod);
  for (double& value : values) value = std::floor(uniform(random) * 16) / 16;
  return values;
}

template <typename T>
constexpr DataType kTypeOf = DataType::kFloat32;
template <>
constexpr DataType kTypeOf<double> = DataType::kFloat64;
template <>
constexpr DataType kTypeOf<int32_t> = DataType::kInt32;
template <>
constexpr DataType kTypeOf<int64_t> = DataType::kInt64;
template <>
constexpr DataType kTypeOf<uint8_t> = DataType::kUint8;
template <>
constexpr DataType kTypeOf<int16_t> = DataType::kInt16;

// Inputs as T holds them; small and not negative for bytes.
template <typename T>
std::vector<T> TypedInput(int rank) {
  std::vector<T> values;
  for (const double v : Input(rank)) {
    values.push_back(std::is_same_v<T, uint8_t>
                         ? static_cast<T>(std::fmod(std::abs(v), 50))
                         : static_cast<T>(v));
  }
  return values;
}

template <typename T>
std::vector<double> Expected(int n, ReduceOp op) {
  std::vector<double> result;
  for (int rank = 0; rank < n; ++rank) {
    const std::vector<T> values = TypedInput<T>(rank);
    if (rank == 0) {
      result.assign(values.begin(), values.end());
      continue;
    }
    for (size_t i = 0; i < kPeriod; ++i) {
      result[i] = Combine(op, result[i], values[i]);
    }
  }
  if (op == ReduceOp::kMean) {
    for (double& value : result) value = static_cast<T>(value / n);
  }
  return result;
}

template <typename T>
void Fill(const std::vector<T>& values, T* data, size_t count) {
  FillPeriodic(data, sizeof(T), count, kPeriod,
               [&](size_t i) { data[i] = values[i]; });
}

template <typename T, typename Want>
void ExpectElements(const std::vector<Want>& wanted, const T* data,
                    size_t first, size_t end) {
  const size_t wrong =
      FirstWrong(data, sizeof(T), first, end, kPeriod,
                 [&](size_t i) { return data[i] == wanted[i % kPeriod]; });
  ASSERT_EQ(wrong, end) << +data[wrong] << " instead of "
                        << +wanted[wrong % kPeriod];
}

template <typename T>
void CheckReductions(Communicator* c, size_t count) {
  auto buffer = c->Allocate((count + 3) * sizeof(T));
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data) % 64, 0u);
  T* const data = static_cast<T*>((*buffer)->data) + 3;
  std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};
  if (std::is_floating_point_v<T>) ops.push_back(ReduceOp::kMean);
  for (const ReduceOp op : ops) {
    const std::vector<double> expected = Expected<T>(c->size(), op);
    const std::vector<T> input = TypedInput<T>(c->rank());
    Operation operation{.slice = {*buffer, 3, count, kTypeOf<T>}, .op = op};
    Fill(input, data, count);
    ASSERT_TRUE(collective::Run(c, operation, kLong).ok());
    ASSERT_NO_FATAL_FAILURE(ExpectElements(expected, data, 0, count));

    if (count % c->size() != 0) continue;
    operation.kind = CollectiveKind::kReduceScatter;
    Fill(input, data, count);
    ASSERT_TRUE(collective::Run(c, operation, kLong).ok());
    const size_t part = count / c->size();
    ASSERT_NO_FATAL_FAILURE(ExpectElements(expected, data, c->rank() * part,
                                           (c->rank() + 1) * part));
  }
}

template <typename T>
void CheckMoves(Communicator* c, size_t count) {
  auto buffer = c->Allocate(count * sizeof(T));
  ASSERT_TRUE(buffer.ok());
  T* const data = static_cast<T*>((*buffer)->data);
  const Slice slice{*buffer, 0, count, kTypeOf<T>};
  for (int root = 0; root < c->size(); ++root) {
    Fill(TypedInput<T>(c->rank()), data, count);
    ASSERT_TRUE(
        collective::Run(
            c,
            {.kind = CollectiveKind::kBroadcast, .slice = slice, .root = root},
            kLong)
            .ok());
    ASSERT_NO_FATAL_FAILURE(
        ExpectElements(TypedInput<T>(root), data, 0, count));
  }
  if (count % c->size() != 0) return;
  const size_t part = count / c->size();
  Fill(TypedInput<T>(c->rank()), data + c->rank() * part, part);
  ASSERT_TRUE(
      collective::Run(c, {.kind = CollectiveKind::kAllGather, .slice = slice},
                      kLong)
          .ok());
  for (int rank = 0; rank < c->size(); ++rank) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectElements(TypedInput<T>(rank), data + rank * part, 0, part));
  }
}

class EverySize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EverySize, ::testing::Values(1, 2, 3, 4));

TEST_P(EverySize, ReductionsEqualFloat64) {
  WithRanks(GetParam(), [](Communicator* c) {
    // 300007 float32 are more than one segment of a ring.
    for (const size_t count : {0, 1, 2, 12, 37, 5040, 300007, 600000}) {
      if (kSanitized && count > 400'000) continue;
      CheckReductions<float>(c, count);
    }
    CheckReductions<double>(c, 5040);
    CheckReductions<int32_t>(c, 5041);
    CheckReductions<int64_t>(c, 5040);
    CheckReductions<uint8_t>(c, 5040);
    CheckReductions<int16_t>(c, 5040);
  });
}

TEST_P(EverySize, MovesAreExact) {
  WithRanks(GetParam(), [](Communicator* c) {
    for (const size_t count : {0, 1, 12, 37, 5040, 600000}) {
      if (kSanitized && count > 400'000) continue;
      CheckMoves<float>(c, count);
    }
    CheckMoves<uint8_t>(c, 5041);
    CheckMoves<int64_t>(c, 48);
  });
}

TEST_P(EverySize, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  const int n = GetParam();
  WithRanks(n, [&](Communicator* c) {
    for (int round = 1; round <= 20; ++round) {
      if (c->rank() == round % n) std::this_thread::yield();
      arrived.fetch_add(1);
      ASSERT_TRUE(
          collective::Run(c, {.kind = CollectiveKind::kBarrier}, kLong).ok());
      ASSERT_GE(arrived.load(), round * n);
    }
  });
}

// Values whose float32 sum depends on the order of the operands.
std::vector<std::vector<char>> SumOfRough(int n, size_t count) {
  std::vector<std::vector<char>> results(n);
  WithRanks(n, [&](Communicator* c) {
    auto buffer = c->Allocate(count * 4);
    ASSERT_TRUE(buffer.ok());
    float* const data = static_cast<float*>((*buffer)->data);
    std::mt19937 random(7 + c->rank());
    std::normal_distribution<float> normal;
    FillPeriodic(data, 4, count, 9 * kPeriod, [&](size_t i) {
      data[i] = normal(random) * std::pow(10.f, i % 9);
    });
    ASSERT_TRUE(
        collective::Run(c, {.slice = {*buffer, 0, count, DataType::kFloat32}},
                        kLong)
            .ok());
    const char* bytes = reinterpret_cast<const char*>(data);
    results[c->rank()].assign(bytes, bytes + count * 4);
  });
  return results;
}

TEST_P(EverySize, SameBitsOnAllRanksAndInEveryRun) {
  const auto first = SumOfRough(GetParam(), 300001);
  const auto second = SumOfRough(GetParam(), 300001);
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_EQ(first[rank], first[0]);
    EXPECT_EQ(second[rank], first[0]);
  }
}

// ---- special_values_test_util.h ----

void CheckSpecialValues(Communicator* c, const Format& f) {
  std::vector<std::vector<double>> inputs;
  for (int rank = 0; rank < c->size(); ++rank) {
    inputs.push_back(SpecialInput(f, rank, c->size()));
  }
  const size_t period = inputs[0].size();
  std::vector<uint64_t> own;
  for (const double v : inputs[c->rank()]) own.push_back(f.Encode(v));
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
    std::vector<Wanted> wanted;
    for (size_t i = 0; i < period; ++i) {
      wanted.push_back(WantedAt(f, op, c->backend(), inputs, i));
    }
    // Of each of tcp's algorithms, and of a hierarchy's.
    for (const size_t bytes : {2'000, 100'000, 600'000}) {
      if (kSanitized && bytes > 100'000) continue;
      const size_t count = std::max(bytes / f.bytes() | 1, period);
      auto buffer = c->Allocate((count + 3) * f.bytes());
      ASSERT_TRUE(buffer.ok());
      char* const data = static_cast<char*>((*buffer)->data) + 3 * f.bytes();
      FillPeriodic(data, f.bytes(), count, period, [&](size_t i) {
        std::memcpy(data + i * f.bytes(), &own[i], f.bytes());
      });
      const Status status = collective::Run(
          c, {.slice = {*buffer, 3, count, f.type}, .op = op}, kLong);
      ASSERT_TRUE(status.ok()) << status;
      const auto got = [&](size_t i) {
        uint64_t code = 0;
        std::memcpy(&code, data + i * f.bytes(), f.bytes());
        return f.Decode(code);
      };
      const size_t wrong =
          FirstWrong(data, f.bytes(), 0, count, period, [&](size_t i) {
            const auto [want, tolerance] = wanted[i % period];
            return got(i) == want || (std::isnan(got(i)) && std::isnan(want)) ||
                   std::abs(got(i) - want) <= tolerance;
          });
      ASSERT_EQ(wrong, count)
          << Name(f.type) << ", op " << static_cast<int>(op) << ", row "
          << wrong % period / c->size() << ": " << got(wrong) << " instead of "
          << wanted[wrong % period].value;
    }
  }
}

class SomeSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SomeSizes, ::testing::Values(2, 3, 5, 8));

TEST_P(SomeSizes, SpecialValuesEqualFloat64) {
  WithRanks(GetParam(), [](Communicator* c) {
    for (const Format& f : kFormats) {
      CheckSpecialValues(c, f);
    }
  });
}

TEST(CommunicatorTest, BucketsMayBeInFlightTogether) {
  WithRanks(2, [](Communicator* c) {
    std::vector<const Buffer*> buffers;
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < 20; ++i) {
      auto buffer = c->Allocate(40000);
      ASSERT_TRUE(buffer.ok());
      buffers.push_back(*buffer);
      static_cast<float*>((*buffer)->data)[9999] = c->rank() + i;
      auto work = c->Start({.slice = {*buffer, 0, 10000, DataType::kFloat32}});
      ASSERT_TRUE(work.ok());
      works.push_back(std::move(*work));
    }
    // The last one ends last; then all others have ended.
    ASSERT_TRUE(works.back()->Wait(MonotonicNow() + kLong).ok());
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(works[i]->Poll());
      ASSERT_TRUE(works[i]->Wait(MonotonicNow()).ok());
      EXPECT_EQ(static_cast<float*>(buffers[i]->data)[9999], 1 + 2 * i);
    }
  });
}

TEST(CommunicatorTest, AWorkTellsWhenItRan) {
  WithRanks(2, [](Communicator* c) {
    const MonoTime start = MonotonicNow();
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < 2; ++i) {
      auto buffer = c->Allocate(1 << 20);
      ASSERT_TRUE(buffer.ok());
      auto work =
          c->Start({.slice = {*buffer, 0, 1 << 18, DataType::kFloat32}});
      ASSERT_TRUE(work.ok()) << work.status();
      works.push_back(*std::move(work));
    }
    ASSERT_TRUE(AwaitTrue([&] { return works[1]->Poll(); }));
    const MonoTime seen = MonotonicNow();
    for (const auto& work : works) {
      ASSERT_TRUE(work->Wait(MonotonicNow() + kLong).ok());
    }
    const auto first = works[0]->ran();
    const auto second = works[1]->ran();
    if (c->progress() == ProgressMode::kInline) {
      EXPECT_FALSE(first || second);
      return;
    }
    ASSERT_TRUE(first && second);
    // One after the other, and over before anybody waited for them.
    EXPECT_LE(start, first->began);
    EXPECT_LT(first->began, first->ended);
    EXPECT_LE(first->ended, second->began);
    EXPECT_LT(second->began, second->ended);
    EXPECT_LE(second->ended, seen);
  });
}

TEST(CommunicatorTest, RefusesOwnMistakesAndGoesOn) {
  WithRanks(2, [](Communicator* c) {
    auto buffer = c->Allocate(4096);
    ASSERT_TRUE(buffer.ok());
    const auto refused = [&](const Operation& operation, const char* text) {
      const Status status = collective::Run(c, operation, kLong);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(Message(status), HasSubstr(text));
    };
    const DataType f32 = DataType::kFloat32;
    refused({.slice = {nullptr, 0, 1, f32}}, "buffer");
    Buffer strange = **buffer;
    refused({.slice = {&strange, 0, 1, f32}}, "not this communicator's");
    refused({.slice = {*buffer, 0, 1025, f32}}, "leaves its buffer");
    refused({.slice = {*buffer, 1024, 1, f32}}, "leaves its buffer");
    refused({.slice = {*buffer, SIZE_MAX, 2, f32}}, "leaves its buffer");
    refused({.slice = {*buffer, 2, SIZE_MAX, f32}}, "leaves its buffer");
    refused({.kind = CollectiveKind::kAllGather, .slice = {*buffer, 0, 3, f32}},
            "divide by 2 ranks");
    refused({.kind = CollectiveKind::kBroadcast,
             .slice = {*buffer, 0, 3, f32},
             .root = 2},
            "root 2");
    int stream = 0;
    EXPECT_FALSE(
        c->Start({.slice = {*buffer, 0, 1, f32}}, &stream).status().ok());
    EXPECT_TRUE(
        collective::Run(c, {.kind = CollectiveKind::kBarrier}, kLong).ok());
  });
}

TEST(CommunicatorTest, ImpossibleAllocationIsAnError) {
  WithRanks(1, [](Communicator* c) {
    EXPECT_EQ(c->Allocate(SIZE_MAX - 5).status().code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(c->Allocate(size_t{1} << 60).status().code(),
              StatusCode::kResourceExhausted);
    auto empty = c->Allocate(0);
    ASSERT_TRUE(empty.ok());
    EXPECT_NE((*empty)->data, nullptr);
  });
}

TEST(FormTest, OneRankNeedsNoBackend) {
  CommunicatorOptions options;
  options.label = "job solo g1";
  auto c = FormCommunicator(options);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ((*c)->backend(), "self");
  auto buffer = (*c)->Allocate(16);
  ASSERT_TRUE(buffer.ok());
  static_cast<float*>((*buffer)->data)[3] = 5;
  EXPECT_TRUE(collective::Run(c->get(),
                              {.slice = {*buffer, 0, 4, DataType::kFloat32}},
                              kLong)
                  .ok());
  EXPECT_EQ(static_cast<float*>((*buffer)->data)[3], 5);
  EXPECT_FALSE(
      collective::Run(c->get(),
                      {.slice = {*buffer, 0, 4096, DataType::kFloat32}}, kLong)
          .ok());
  (*c)->Abort("stop");
  (*c)->Abort("again");
  const Status after =
      collective::Run(c->get(), {.kind = CollectiveKind::kBarrier}, kLong);
  EXPECT_EQ(after.code(), StatusCode::kAborted);
  EXPECT_EQ(Message(after), "job solo g1: stop");
}

TEST(FormTest, RefusesWhatCannotWork) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  const auto expect = [&](CommunicatorOptions options, StatusCode code,
                          const char* text) {
    const Status status = FormCommunicator(options).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(Message(status), HasSubstr(text));
  };
  auto options = TestOptions(0, 2, &store);
  options.backend = "carrier";
  expect(options, StatusCode::kInvalidArgument, "unknown backend carrier");
  options.backend = "../../tmp/x";
  expect(options, StatusCode::kInvalidArgument, "not a backend name");
  options.backend = "gloo";
  expect(options, StatusCode::kInvalidArgument, "use tcp, or auto");
  options.backend = "nccl";
  expect(options, StatusCode::kFailedPrecondition, "rank 0 has no GPU");
  options.backend = "self";
  expect(options, StatusCode::kInvalidArgument, "one rank");
  options = TestOptions(2, 2, &store);
  expect(options, StatusCode::kInvalidArgument, "rank 2");
  options = TestOptions(0, 2, nullptr);
  expect(options, StatusCode::kInvalidArgument, "rendezvous");
  options = TestOptions(0, 2, &store);
  options.bind_address = "0.0.0.0";
  expect(options, StatusCode::kInvalidArgument, "every address");
  options.bind_address = "localhost";
  expect(options, StatusCode::kInvalidArgument, "not an IP address");
  options.bind_address = "192.0.2.1";
  expect(options, StatusCode::kInvalidArgument, "cannot bind to 192.0.2.1");
}

TEST(FormTest, SigpipeMustBeIgnored) {
  MapRendezvousStore store;
  auto* const before = signal(SIGPIPE, SIG_DFL);
  const Status status = FormCommunicator(TestOptions(0, 2, &store)).status();
  signal(SIGPIPE, before);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("SIGPIPE"));
}

TEST(FormTest, MissingPeersAreNamedAtTheDeadline) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  // Ranks 1 and 3 of four never come. The deadline is one: a rank that gives up
  // tells the other.
  const MonoTime start = MonotonicNow();
  SpawnRanks(2, [&](int i) {
    auto options = TestOptions(2 * i, 4, &store);
    options.forming_deadline = start + seconds(1);
    const Status status = FormCommunicator(options).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("job test g1"), HasSubstr("rank 1, 3 ")));
    EXPECT_GE(MonotonicNow() - start, seconds(1));
    EXPECT_LT(MonotonicNow() - start, seconds(5));
  });
}

TEST(FormTest, WorksOverIpv6) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  std::atomic<int> formed{0};
  std::atomic<int> without{0};
  SpawnRanks(3, [&](int rank) {
    auto options = TestOptions(rank, 3, &store);
    options.bind_address = "::1";
    auto c = FormCommunicator(options);
    if (!c.ok() && absl::IsInvalidArgument(c.status())) {
      ++without;
      return;
    }
    ASSERT_TRUE(c.ok()) << c.status();
    ++formed;
    EXPECT_TRUE(
        collective::Run(c->get(), {.kind = CollectiveKind::kBarrier}, kLong)
            .ok());
  });
  if (without == 3) GTEST_SKIP() << "this host has no IPv6 loopback";
  EXPECT_EQ(formed, 3);
}

}  // namespace
}  // namespace lockstep::worker::collective
