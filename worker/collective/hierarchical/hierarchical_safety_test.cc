// How a hierarchy of shared memory and TCP ends when it cannot go on, on hosts
// that are only numbers. What every backend must do is tested with the others
// (abort_latency_test.cc, and abort_test.cc with this backend).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include "worker/collective/hierarchical/hierarchical_communicator.h"
#include "worker/collective/hierarchical/linked_abort.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr Duration kSafetyLimit = seconds(30);
constexpr Duration kSoon = seconds(5);

using Hosts = std::vector<int>;

StatusOr<std::unique_ptr<Communicator>> FormSafely(int rank, const Hosts& hosts,
                                                   RendezvousStore* store) {
  auto options = TestOptions(rank, static_cast<int>(hosts.size()), store);
  options.key = "a key of this generation";
  return FormHierarchical(options, hosts);
}

void WithSafeHosts(const Hosts& hosts,
                   const std::function<void(Communicator*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(static_cast<int>(hosts.size()), [&](int rank) {
    auto formed = FormSafely(rank, hosts, &store);
    ASSERT_TRUE(formed.ok()) << formed.status();
    fn(formed->get());
  });
}

Operation Floats(Communicator* c, size_t count) {
  auto buffer = c->Allocate(count * 4);
  return {.slice = {*buffer, 0, count, DataType::kFloat32}};
}

// Waits until `count` has reached `all`, for all to leave together.
void Meet(std::atomic<int>* count, int all) {
  ++*count;
  const MonoTime deadline = MonotonicNow() + kSafetyLimit;
  while (*count < all && MonotonicNow() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// ---- One side hears of the other ----

// Runs one sum on {0, 0, 1, 1} but on those of `absent`, of which rank 0 gives
// up after 100 ms. Returns what each got; none may take longer than kSoon then.
std::vector<Status> RunWithout(const std::vector<int>& absent) {
  std::vector<Status> ends(4);
  std::vector<MonoTime> times(4);
  std::atomic<int> out{0};
  WithSafeHosts({0, 0, 1, 1}, [&](Communicator* c) {
    const int rank = c->rank();
    if (std::find(absent.begin(), absent.end(), rank) == absent.end()) {
      ends[rank] = collective::Run(
          c, Floats(c, 1 << 18), rank == 0 ? milliseconds(100) : kSafetyLimit);
      times[rank] = MonotonicNow();
    }
    Meet(&out, 4);
  });
  for (int rank = 0; rank < 4; ++rank) {
    if (ends[rank].ok()) continue;
    EXPECT_LT(times[rank] - times[0], kSoon) << rank << ": " << ends[rank];
  }
  return ends;
}

TEST(HierarchicalEndTest, ARankThatWaitsBetweenHearsOfItsHost) {
  // Rank 0 waits in its host; rank 3 between, for the absent one, and its
  // neighbour for rank 0.
  const auto ends = RunWithout({1});
  EXPECT_EQ(ends[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(ends[0]), HasSubstr("rank 1"));
  for (const int rank : {2, 3}) {
    EXPECT_EQ(ends[rank].code(), StatusCode::kUnavailable) << ends[rank];
  }
}

TEST(HierarchicalEndTest, ARankThatWaitsInItsHostHearsOfTheOther) {
  // Ranks 0 and 2 wait in their hosts, each for one that is absent: rank 2
  // hears of rank 0's end by a connection that nobody reads from.
  const auto ends = RunWithout({1, 3});
  EXPECT_EQ(ends[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ends[2].code(), StatusCode::kUnavailable) << ends[2];
  EXPECT_THAT(Message(ends[2]),
              AnyOf(HasSubstr("rank 0"), HasSubstr("rank 3")));
}

TEST(HierarchicalEndTest, ARankThatLeftInGoodOrderEndsNobody) {
  for (int round = 0; round < (kSanitized ? 3 : 20); ++round) {
    WithSafeHosts({0, 0, 1, 1}, [&](Communicator* c) {
      const Operation sum = Floats(c, 100'000);
      for (int i = 0; i < 3; ++i) {
        const Status status = collective::Run(c, sum, kSafetyLimit);
        ASSERT_TRUE(status.ok()) << c->rank() << ": " << status;
      }
    });
  }
}

// ---- LinkedAbort ----

class CountingCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string_view backend() const override { return "test"; }
  StatusOr<const Buffer*> Allocate(size_t) override {
    return Unimplemented("not here");
  }
  StatusOr<std::unique_ptr<Work>> Start(const Operation&, Stream) override {
    return Unimplemented("not here");
  }
  void Abort(std::string_view reason) override {
    reasons.emplace_back(reason);
    if (then) then();
  }

  std::vector<std::string> reasons;
  std::function<void()> then;
};

TEST(LinkedAbortTest, EndsTheOtherOnceWithTheFirstReason) {
  CountingCommunicator within;
  CountingCommunicator between;
  LinkedAbort linked_abort;
  linked_abort.Attach(&within, &between);
  // As a communicator does that is told to end.
  between.then = [&] {
    linked_abort.Break(LinkedAbort::From::kBetween, Aborted("nested"));
  };
  linked_abort.Break(LinkedAbort::From::kWithin, Unavailable("the first"));
  linked_abort.Break(LinkedAbort::From::kBetween, Unavailable("the second"));
  EXPECT_EQ(linked_abort.first(), Unavailable("the first"));
  EXPECT_THAT(between.reasons, ::testing::ElementsAre("the first"));
  EXPECT_TRUE(within.reasons.empty());
  linked_abort.Detach();
}

TEST(LinkedAbortTest, WhatBrokeBeforeEndsTheOtherWhenItComes) {
  CountingCommunicator within;
  CountingCommunicator between;
  LinkedAbort linked_abort;
  linked_abort.Break(LinkedAbort::From::kBetween, Unavailable("early"));
  linked_abort.Attach(&within, &between);
  EXPECT_THAT(within.reasons, ::testing::ElementsAre("early"));
  linked_abort.Detach();
}

TEST(LinkedAbortTest, TouchesNoPeerOnceDetached) {
  CountingCommunicator within;
  LinkedAbort linked_abort;
  linked_abort.Attach(&within, nullptr);
  linked_abort.Detach();
  linked_abort.Break(LinkedAbort::From::kOutside, Unavailable("late"));
  EXPECT_TRUE(within.reasons.empty());
  EXPECT_EQ(linked_abort.first(), Unavailable("late"));
}

// ---- Mismatches ----

// Rank r of {0, 0, 1, 1} runs operation(r); all are refused, and somebody is
// told both words.
void ExpectBothNamed(const std::function<Operation(int, const Buffer*)>& make,
                     const std::vector<std::string>& words) {
  std::vector<Status> ends(4);
  std::atomic<int> out{0};
  WithSafeHosts({0, 0, 1, 1}, [&](Communicator* c) {
    auto buffer = c->Allocate(8 << 20);
    ends[c->rank()] = collective::Run(c, make(c->rank(), *buffer), seconds(20));
    Meet(&out, 4);
  });
  int told = 0;
  for (const Status& end : ends) {
    EXPECT_THAT(end.code(), AnyOf(StatusCode::kFailedPrecondition,
                                  StatusCode::kUnavailable))
        << end;
    bool all = true;
    for (const std::string& word : words) {
      all = all && Message(end).find(word) != std::string::npos;
    }
    told += all ? 1 : 0;
  }
  EXPECT_GE(told, 1) << ends[0] << "\n"
                     << ends[1] << "\n"
                     << ends[2] << "\n"
                     << ends[3];
}

Operation Sum(const Buffer* b, size_t count,
              DataType type = DataType::kFloat32) {
  return {.slice = {b, 0, count, type}};
}

TEST(HierarchicalMismatchTest, BetweenHostsNamesBothSides) {
  ExpectBothNamed(
      [](int rank, const Buffer* b) { return Sum(b, rank < 2 ? 1000 : 1004); },
      {"1000 float32", "1004 float32"});
  ExpectBothNamed(
      [](int rank, const Buffer* b) {
        return Sum(b, 1000, rank < 2 ? DataType::kFloat32 : DataType::kInt32);
      },
      {"float32", "int32"});
}

TEST(HierarchicalMismatchTest, WithinAHostNamesBothSides) {
  ExpectBothNamed(
      [](int rank, const Buffer* b) { return Sum(b, rank != 1 ? 1000 : 1004); },
      {"1000 float32", "1004 float32"});
}

// The first stage of both is the same: a reduce-scatter of 524288 float32.
TEST(HierarchicalMismatchTest, TheWholeIsNamedWhereTheStagesAreTheSame) {
  const std::vector<std::string> sizes = {
      "part of all-reduce (sum) of 1000000 float32",
      "part of all-reduce (sum) of 1100000 float32"};
  for (const int odd : {1, 2}) {
    ExpectBothNamed(
        [&](int rank, const Buffer* b) {
          return Sum(b, rank == odd ? 1'100'000 : 1'000'000);
        },
        sizes);
  }
  // A mean is a sum that is divided in the end.
  ExpectBothNamed(
      [](int rank, const Buffer* b) {
        Operation operation = Sum(b, 1'000'000);
        if (rank > 1) operation.op = ReduceOp::kMean;
        return operation;
      },
      {"part of all-reduce (sum) of 1000000 float32",
       "part of all-reduce (mean) of 1000000 float32"});
  // Both roots are of the first host, whose ranks have this stage in common.
  ExpectBothNamed(
      [](int rank, const Buffer* b) {
        Operation operation = Sum(b, 1'000'000);
        operation.kind = CollectiveKind::kBroadcast;
        operation.root = rank == 1 ? 1 : 0;
        return operation;
      },
      {"part of broadcast of 1000000 float32 from rank 0",
       "part of broadcast of 1000000 float32 from rank 1"});
}

// ---- Numbers ----

TEST(HierarchicalNumbersTest, NaNInfinityAndDenormalsStay) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kHuge = std::numeric_limits<float>::max();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const size_t count : {8, 100'000}) {
    WithSafeHosts({0, 0, 1, 1}, [&](Communicator* c) {
      const Operation sum = Floats(c, count);
      auto* const data = static_cast<float*>(sum.slice.buffer->data);
      for (size_t i = 0; i < count; i += 4) {
        data[i] = kTiny * static_cast<float>(c->rank() + 1);
        data[i + 1] = c->rank() == 2 ? kNaN : 1;
        data[i + 2] = kHuge;
        data[i + 3] = c->rank() == 1 ? -0.0f : 0.0f;
      }
      ASSERT_TRUE(collective::Run(c, sum, kSafetyLimit).ok());
      for (size_t i = 0; i < count; i += 4) {
        ASSERT_EQ(data[i], 10 * kTiny) << i;
        ASSERT_TRUE(std::isnan(data[i + 1])) << i;
        ASSERT_TRUE(std::isinf(data[i + 2])) << i;
        ASSERT_EQ(data[i + 3], 0) << i;
      }
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        std::fill(data, data + count, 1.0f);
        if (c->rank() == 3) data[count - 1] = kNaN;
        Operation extreme = sum;
        extreme.op = op;
        ASSERT_TRUE(collective::Run(c, extreme, kSafetyLimit).ok());
        ASSERT_EQ(data[0], 1);
        ASSERT_TRUE(std::isnan(data[count - 1]));
      }
    });
  }
}

// Sums of small integers, exact in every type, against float64.
void CheckSums(Communicator* c, DataType type, size_t count) {
  const auto value = [&](int rank, size_t i) {
    return static_cast<double>((rank * 5 + i * 3) % 11);
  };
  auto buffer = c->Allocate((count + 1) * SizeOf(type));
  ASSERT_TRUE(buffer.ok());
  // Unaligned to anything but the element.
  char* const data = static_cast<char*>((*buffer)->data) + SizeOf(type);
  const auto store = [&](size_t i, double v) {
    switch (type) {
      case DataType::kFloat64:
        return void(std::memcpy(data + 8 * i, &v, 8));
      case DataType::kInt64: {
        const auto n = static_cast<int64_t>(v);
        return void(std::memcpy(data + 8 * i, &n, 8));
      }
      case DataType::kInt32: {
        const auto n = static_cast<int32_t>(v);
        return void(std::memcpy(data + 4 * i, &n, 4));
      }
      case DataType::kUint8:
      case DataType::kInt8:
        return void(data[i] = static_cast<char>(v));
      case DataType::kInt16: {
        const auto n = static_cast<int16_t>(v);
        return void(std::memcpy(data + 2 * i, &n, 2));
      }
      case DataType::kBfloat16: {
        const auto f = static_cast<float>(v);
        uint32_t bits;
        std::memcpy(&bits, &f, 4);
        const auto half = static_cast<uint16_t>(bits >> 16);
        return void(std::memcpy(data + 2 * i, &half, 2));
      }
      case DataType::kFloat16: {
        int exponent = 0;
        const double fraction = std::frexp(v, &exponent);
        const auto half = static_cast<uint16_t>(
            v == 0 ? 0
                   : (exponent + 14) << 10 |
                         (static_cast<int>(fraction * 2048) & 1023));
        return void(std::memcpy(data + 2 * i, &half, 2));
      }
      case DataType::kFloat32: {
        const auto f = static_cast<float>(v);
        return void(std::memcpy(data + 4 * i, &f, 4));
      }
    }
  };
  for (size_t i = 0; i < count; ++i) store(i, value(c->rank(), i));
  const Status status =
      collective::Run(c, {.slice = {*buffer, 1, count, type}}, kSafetyLimit);
  ASSERT_TRUE(status.ok()) << status;
  const std::string got(data, count * SizeOf(type));
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int rank = 0; rank < c->size(); ++rank) sum += value(rank, i);
    store(i, sum);
  }
  EXPECT_TRUE(std::memcmp(got.data(), data, got.size()) == 0)
      << Name(type) << " of " << count << " on rank " << c->rank() << " of "
      << c->size();
}

class EveryShape : public ::testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(
    Ranks, EveryShape,
    ::testing::Values(Hosts{0, 1}, Hosts{0, 0, 1}, Hosts{0, 0, 1, 1},
                      Hosts{0, 1, 1, 2, 2}, Hosts{0, 0, 1, 1, 2, 2},
                      Hosts{0, 0, 0, 0, 1, 1, 1}, Hosts{0, 0, 0, 0, 1, 1, 1, 1},
                      Hosts{0, 1, 2, 3, 0, 1, 2, 3}));

TEST_P(EveryShape, EveryTypeIsRight) {
  WithSafeHosts(GetParam(), [](Communicator* c) {
    for (const DataType type :
         {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
          DataType::kBfloat16, DataType::kInt32, DataType::kInt64,
          DataType::kUint8}) {
      for (const size_t count : {0, 1, 37, 20'011}) CheckSums(c, type, count);
    }
    if (!kSanitized) CheckSums(c, DataType::kFloat32, 700'001);
  });
}

// ---- Generations ----

TEST(HierarchicalGenerationsTest, FiveHundredLeaveNothingBehind) {
  signal(SIGPIPE, SIG_IGN);
  const int generations = kSanitized ? 50 : 500;
  const Hosts hosts = {0, 0, 1, 1};
  Usage first;
  for (int generation = 0; generation < generations; ++generation) {
    // Every other one ends by an abort of one rank.
    const bool aborts = generation % 2 == 1;
    WithSafeHosts(hosts, [&](Communicator* c) {
      const Operation sum = Floats(c, 10'000);
      Status status = collective::Run(c, sum, kSafetyLimit);
      // Who aborts may have the sum before the others.
      if (!aborts || c->rank() == generation % 4) {
        EXPECT_TRUE(status.ok()) << status;
      }
      if (!aborts) return;
      if (c->rank() == generation % 4) {
        c->Abort("next");
      } else {
        while (status.ok()) status = collective::Run(c, sum, kSafetyLimit);
      }
    });
    if (generation == 20) first = UsageNow();
  }
  EXPECT_EQ(CheckNoGrowth(first), OkStatus());
}

}  // namespace
}  // namespace lockstep::worker::collective::hierarchical
