// What comes out: every kind, type and op, at every size, against float64.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "worker/collective/periodic_test_util.h"
#include "worker/collective/shm/shm_test_util.h"

namespace lockstep::worker::collective::shm {
namespace {

using ::testing::HasSubstr;

// Where a test's data lie.
enum class Kind { kAllocated, kRegistered };

// A buffer of either kind.
class Memory {
 public:
  Memory(Communicator* c, Kind kind, size_t bytes) {
    if (kind == Kind::kAllocated) {
      buffer_ = c->Allocate(bytes).value();
    } else {
      own_.resize(bytes / 8 + 1);
      buffer_ = c->Register(own_.data(), bytes).value();
    }
  }
  const Buffer* buffer() const { return buffer_; }

 private:
  std::vector<double> own_;
  const Buffer* buffer_ = nullptr;
};

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

// Floats of 16 bits, rounded to the nearest, ties to even.
class Half {
 public:
  explicit Half(double value)
      : value_(static_cast<_Float16>(static_cast<float>(value))) {}
  operator double() const { return static_cast<double>(value_); }

 private:
  _Float16 value_;
};
class Bfloat16 {
 public:
  explicit Bfloat16(double value) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    bits_ = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
  operator double() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits_) << 16);
  }

 private:
  uint16_t bits_;
};
template <>
constexpr DataType kTypeOf<Half> = DataType::kFloat16;
template <>
constexpr DataType kTypeOf<Bfloat16> = DataType::kBfloat16;

template <typename T>
constexpr bool kIs16Bit = sizeof(T) == 2;
template <typename T>
constexpr bool kIsFloat = std::is_floating_point_v<T> || kIs16Bit<T>;

// Small whole numbers: sums are exact in every type.
constexpr size_t kPeriod = 11;
template <typename T>
T InputOf(int rank, size_t i) {
  return static_cast<T>((i * 7 + static_cast<size_t>(rank) * 13) % kPeriod);
}
template <typename T>
void FillInputs(int rank, T* data, size_t count) {
  FillPeriodic(data, sizeof(T), count, kPeriod,
               [&](size_t i) { data[i] = InputOf<T>(rank, i); });
}

template <typename T>
double Expected(int n, size_t i, ReduceOp op) {
  double value = InputOf<T>(0, i);
  for (int rank = 1; rank < n; ++rank) {
    const double next = InputOf<T>(rank, i);
    if (op == ReduceOp::kMin) {
      value = std::min(value, next);
    } else if (op == ReduceOp::kMax) {
      value = std::max(value, next);
    } else {
      value += next;
    }
  }
  if (op == ReduceOp::kMean) {
    // 16-bit means are float32 before they are rounded.
    return static_cast<T>(kIs16Bit<T> ? static_cast<float>(value) /
                                            static_cast<float>(n)
                                      : value / n);
  }
  return value;
}

// want(i) is what element i must be.
template <typename T, typename Want>
void ExpectElements(const T* data, size_t first, size_t end, const Want& want) {
  const size_t wrong = FirstWrong(data, sizeof(T), first, end, kPeriod,
                                  [&](size_t i) { return data[i] == want(i); });
  ASSERT_EQ(wrong, end) << static_cast<double>(data[wrong]) << " instead of "
                        << static_cast<double>(want(wrong));
}

template <typename T>
void CheckReductions(Communicator* c, Kind kind, size_t count) {
  constexpr size_t kOffset = 3;
  const int n = c->size();
  const Memory memory(c, kind, (count + kOffset + 1) * sizeof(T));
  T* const data = static_cast<T*>(memory.buffer()->data) + kOffset;
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
    if (op == ReduceOp::kMean && !kIsFloat<T>) continue;
    for (const bool scatter : {false, true}) {
      if (scatter && count % n != 0) continue;
      FillInputs(c->rank(), data, count);
      data[count] = static_cast<T>(77);
      const Operation operation{
          .kind = scatter ? CollectiveKind::kReduceScatter
                          : CollectiveKind::kAllReduce,
          .slice = {memory.buffer(), kOffset, count, kTypeOf<T>},
          .op = op};
      const Status status = collective::Run(c, operation, kLong);
      ASSERT_TRUE(status.ok()) << status;
      const size_t part = count / n;
      const size_t first = scatter ? part * c->rank() : 0;
      const size_t end = scatter ? first + part : count;
      ASSERT_NO_FATAL_FAILURE(ExpectElements(
          data, first, end, [&](size_t i) { return Expected<T>(n, i, op); }))
          << "of " << count;
      ASSERT_EQ(data[count], 77);
      // Before anyone writes inputs again nothing may be read any more.
    }
  }
}

template <typename T>
void CheckMoves(Communicator* c, Kind kind, size_t count) {
  const int n = c->size();
  const Memory memory(c, kind, count * sizeof(T));
  T* const data = static_cast<T*>(memory.buffer()->data);
  const Slice slice{memory.buffer(), 0, count, kTypeOf<T>};
  for (int root = 0; root < n; ++root) {
    FillInputs(c->rank(), data, count);
    ASSERT_TRUE(
        collective::Run(
            c,
            {.kind = CollectiveKind::kBroadcast, .slice = slice, .root = root},
            kLong)
            .ok());
    ASSERT_NO_FATAL_FAILURE(ExpectElements(
        data, 0, count, [&](size_t i) { return InputOf<T>(root, i); }));
  }
  if (count % n != 0) return;
  const size_t part = count / n;
  std::fill(data, data + count, T{99});
  FillInputs(c->rank(), data + c->rank() * part, part);
  ASSERT_TRUE(
      collective::Run(c, {.kind = CollectiveKind::kAllGather, .slice = slice},
                      kLong)
          .ok());
  for (int rank = 0; rank < n; ++rank) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectElements(data + rank * part, 0, part,
                       [&](size_t i) { return InputOf<T>(rank, i); }))
        << rank;
  }
}

class ShmEverySize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShmEverySize, ::testing::Range(1, 9));

TEST_P(ShmEverySize, ReductionsEqualFloat64) {
  WithRanks(GetParam(), [](Communicator* c) {
    EXPECT_EQ(c->backend(), "shm");
    for (const Kind kind : {Kind::kAllocated, Kind::kRegistered}) {
      // Around what is small (4 KiB), one chunk, and many.
      for (const size_t count :
           {0, 1, 2, 37, 840, 1023, 1024, 1025, 5040, 70001, 300000}) {
        if (kSanitized && count > 100'000) continue;
        CheckReductions<float>(c, kind, count);
      }
      // 16-bit ones are small up to 2048 elements.
      for (const size_t count : {1, 840, 2520, 50400}) {
        CheckReductions<double>(c, kind, count);
        CheckReductions<Half>(c, kind, count);
        CheckReductions<Bfloat16>(c, kind, count);
        CheckReductions<int32_t>(c, kind, count);
        CheckReductions<int64_t>(c, kind, count);
        CheckReductions<uint8_t>(c, kind, count);
      }
    }
  });
}

TEST_P(ShmEverySize, MovesAreExact) {
  WithRanks(GetParam(), [](Communicator* c) {
    for (const Kind kind : {Kind::kAllocated, Kind::kRegistered}) {
      for (const size_t count : {0, 1, 12, 840, 5040, 600000}) {
        if (kSanitized && count > 400'000) continue;
        CheckMoves<float>(c, kind, count);
      }
      CheckMoves<uint8_t>(c, kind, 5041);
      CheckMoves<int64_t>(c, kind, 84000);
    }
  });
}

// Values whose sum depends on the order of the operands and on roundings.
std::vector<std::vector<char>> SumOfRough(int n, size_t count, DataType type) {
  std::vector<std::vector<char>> results(n);
  WithRanks(n, [&](Communicator* c) {
    const size_t bytes = count * SizeOf(type);
    const Buffer* buffer = c->Allocate(bytes).value();
    std::mt19937 random(7 + c->rank());
    // Any bits: NaN, denormals, infinities.
    auto* const words = static_cast<uint16_t*>(buffer->data);
    FillPeriodic(words, 2, bytes / 2, 10007,
                 [&](size_t i) { words[i] = static_cast<uint16_t>(random()); });
    ASSERT_TRUE(
        collective::Run(c, {.slice = {buffer, 0, count, type}}, kLong).ok());
    const char* const data = static_cast<const char*>(buffer->data);
    results[c->rank()].assign(data, data + bytes);
  });
  return results;
}

TEST_P(ShmEverySize, SameBitsOnAllRanksAndInEveryRun) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat64,
                              DataType::kFloat16, DataType::kBfloat16}) {
    for (const size_t count : {501, 100001}) {
      const auto first = SumOfRough(GetParam(), count, type);
      const auto second = SumOfRough(GetParam(), count, type);
      for (int rank = 0; rank < GetParam(); ++rank) {
        EXPECT_EQ(first[rank], first[0]) << Name(type);
        EXPECT_EQ(second[rank], first[0]) << Name(type);
      }
    }
  }
}

// Sums of denormals are exact, so they equal float64's where nothing is flushed
// to zero: in slots, chunks and streams, at no multiple of anything.
TEST_P(ShmEverySize, DenormalsAreKept) {
  WithRanks(GetParam(), [](Communicator* c) {
    constexpr float kLeast = std::numeric_limits<float>::denorm_min();
    constexpr size_t kRepeats = 1000;
    const auto input = [&](int rank, size_t i) {
      return kLeast * static_cast<float>((i * 31 + 17) % kRepeats + rank);
    };
    const auto sum = [&](size_t i) {
      double all = 0;
      for (int rank = 0; rank < c->size(); ++rank) {
        all += static_cast<double>(input(rank, i));
      }
      return all;
    };
    for (const Kind kind : {Kind::kAllocated, Kind::kRegistered}) {
      for (const size_t count : {7, 70001}) {
        const Memory memory(c, kind, (count + 1) * sizeof(float));
        float* const data = static_cast<float*>(memory.buffer()->data) + 1;
        FillPeriodic(data, sizeof(float), count, kRepeats,
                     [&](size_t i) { data[i] = input(c->rank(), i); });
        ASSERT_TRUE(
            collective::Run(
                c, {.slice = {memory.buffer(), 1, count, DataType::kFloat32}},
                kLong)
                .ok());
        ASSERT_EQ(FirstWrong(data, sizeof(float), 0, count, kRepeats,
                             [&](size_t i) {
                               return static_cast<double>(data[i]) == sum(i);
                             }),
                  count);
      }
    }
  });
}

// Whichever rank has it, and wherever in its share.
TEST_P(ShmEverySize, EveryOpKeepsNaN) {
  WithRanks(GetParam(), [](Communicator* c) {
    const auto n = static_cast<size_t>(c->size());
    for (const Kind kind : {Kind::kAllocated, Kind::kRegistered}) {
      for (const size_t count : {size_t{9}, size_t{30001}}) {
        const Memory memory(c, kind, count * sizeof(float));
        float* const data = static_cast<float*>(memory.buffer()->data);
        for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax,
                                  ReduceOp::kSum, ReduceOp::kMean}) {
          for (size_t i = 0; i < count; ++i) {
            const bool mine = i % n == static_cast<size_t>(c->rank());
            // One in n + 1 is a number everywhere.
            data[i] = mine && i % (n + 1) != n ? std::nanf("") : 1.0f;
          }
          const Status status = collective::Run(
              c,
              {.slice = {memory.buffer(), 0, count, DataType::kFloat32},
               .op = op},
              kLong);
          ASSERT_TRUE(status.ok()) << status;
          for (size_t i = 0; i < count; ++i) {
            if (i % (n + 1) != n) {
              ASSERT_TRUE(std::isnan(data[i])) << i;
            } else {
              ASSERT_EQ(data[i],
                        op == ReduceOp::kSum ? static_cast<float>(n) : 1.0f)
                  << i;
            }
          }
        }
      }
    }
  });
}

// The same numbers whether they are copied, shared, read from private memory,
// or both kinds of memory meet in one operation.
TEST(ShmTest, EveryWayGivesTheSameBits) {
  for (const size_t count : {1000, 50000}) {
    std::vector<std::vector<float>> results(4);
    for (int way = 0; way < 4; ++way) {
      WithRanks(3, [&](Communicator* c) {
        const bool registered = way == 1 || (way == 2 && c->rank() == 1) ||
                                (way == 3 && c->rank() != 1);
        const Memory memory(
            c, registered ? Kind::kRegistered : Kind::kAllocated, count * 4);
        float* const data = static_cast<float*>(memory.buffer()->data);
        std::mt19937 random(c->rank());
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < count; ++i) {
          data[i] = normal(random) * std::pow(10.0f, static_cast<float>(i % 9));
        }
        const Status status =
            collective::Run(c, Floats(memory.buffer(), count), kLong);
        ASSERT_TRUE(status.ok()) << status;
        if (c->rank() == 2) results[way].assign(data, data + count);
      });
      EXPECT_EQ(results[way], results[0]) << way;
    }
  }
}

TEST(ShmTest, SixteenBitFloatsAreSummedInFloat32) {
  WithRanks(3, [](Communicator* c) {
    for (const size_t count : {8, 10000}) {
      const Buffer* buffer = c->Allocate(count * 2).value();
      auto* const data = static_cast<uint16_t*>(buffer->data);
      // 2048 + 1 + 1 is 2050 only where nothing is rounded between.
      std::fill(data, data + count, c->rank() == 0 ? 0x6800 : 0x3c00);
      ASSERT_TRUE(
          collective::Run(c, {.slice = {buffer, 0, count, DataType::kFloat16}},
                          kLong)
              .ok());
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], 0x6801) << i;
    }
  });
}

TEST(ShmTest, ManyInFlightEndInOrder) {
  WithRanks(3, [](Communicator* c) {
    // More than the rings hold, small and large by turns.
    constexpr int kCount = 200;
    std::vector<const Buffer*> buffers;
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < kCount; ++i) {
      const size_t count = i % 3 == 0 ? 5000 : 100;
      const Buffer* buffer = c->Allocate(count * 4).value();
      buffers.push_back(buffer);
      static_cast<float*>(buffer->data)[count - 1] =
          static_cast<float>(c->rank() + i);
      auto work = c->Start(Floats(buffer, count));
      ASSERT_TRUE(work.ok());
      works.push_back(std::move(*work));
    }
    const Status last = works.back()->Wait(MonotonicNow() + kLong);
    ASSERT_TRUE(last.ok()) << last;
    for (int i = 0; i < kCount; ++i) {
      EXPECT_TRUE(works[i]->Poll());
      ASSERT_TRUE(works[i]->Wait(MonotonicNow()).ok());
      const size_t count = i % 3 == 0 ? 5000 : 100;
      EXPECT_EQ(static_cast<float*>(buffers[i]->data)[count - 1], 3 + 3 * i);
    }
  });
}

// Who has started and is busy elsewhere is not waited for.
TEST(ShmTest, ARankThatStartedNeedNotTakePart) {
  WithRanks(2, [](Communicator* c) {
    const Buffer* buffer = c->Allocate(4 << 20).value();
    const Buffer* flag = c->Allocate(4).value();
    static_cast<float*>(buffer->data)[12345] = 1;
    std::unique_ptr<Work> work;
    if (c->rank() == 1) {
      // Has not polled since its peer came.
      auto started = c->Start(Floats(buffer, 1 << 20));
      ASSERT_TRUE(started.ok());
      work = std::move(*started);
      EXPECT_TRUE(AwaitTrue([&] {
        return static_cast<volatile float*>(buffer->data)[12345] == 2;
      }));
    } else {
      ASSERT_TRUE(collective::Run(c, Floats(buffer, 1 << 20), kLong).ok());
      EXPECT_EQ(static_cast<float*>(buffer->data)[12345], 2);
    }
    if (work != nullptr) {
      ASSERT_TRUE(work->Wait(MonotonicNow() + kLong).ok());
    }
    ASSERT_TRUE(collective::Run(c, Floats(flag, 1), kLong).ok());
  });
}

TEST(ShmTest, SaysWhatItDoes) {
  WithRanks(2, [](Communicator* c) {
    EXPECT_EQ(c->progress(), ProgressMode::kInline);
    EXPECT_THAT(c->Plan(), HasSubstr("shm: "));
    EXPECT_THAT(c->Plan(), HasSubstr("2 ranks"));
    const Buffer* buffer = c->Allocate(100).value();
    EXPECT_EQ(buffer->kind, MemoryKind::kShared);
    EXPECT_EQ(buffer->bytes, 4096u);
    EXPECT_EQ(static_cast<char*>(buffer->data)[99], 0);
    ASSERT_TRUE(
        collective::Run(c, {.kind = CollectiveKind::kBarrier}, kLong).ok());
  });
}

TEST(ShmTest, RefusesOwnMistakesAndGoesOn) {
  WithRanks(2, [](Communicator* c) {
    const Buffer* buffer = c->Allocate(4096).value();
    const auto refused = [&](const Operation& operation, const char* text) {
      const Status status = collective::Run(c, operation, kLong);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(Message(status), HasSubstr(text));
    };
    const Buffer strange = *buffer;
    refused(Floats(&strange, 1), "not this communicator's");
    refused(Floats(buffer, 1025), "leaves its buffer");
    refused({.slice = {buffer, SIZE_MAX, 2, DataType::kFloat32}}, "leaves");
    refused({.slice = {buffer, 0, 4, DataType::kInt32}, .op = ReduceOp::kMean},
            "only floats");
    EXPECT_EQ(c->Allocate(SIZE_MAX - 5).status().code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(c->Allocate(size_t{1} << 60).status().code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(c->Register(nullptr, 5).status().code(),
              StatusCode::kInvalidArgument);
    std::vector<float> own(4);
    const Buffer* crooked =
        c->Register(reinterpret_cast<char*>(own.data()) + 1, 8).value();
    refused(Floats(crooked, 1), "not aligned");
    EXPECT_TRUE(
        collective::Run(c, {.kind = CollectiveKind::kBarrier}, kLong).ok());
  });
}

}  // namespace
}  // namespace lockstep::worker::collective::shm
