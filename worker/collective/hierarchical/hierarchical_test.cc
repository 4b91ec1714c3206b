// Shared memory and TCP under one communicator, on hosts that are only
// numbers: all ranks run here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "worker/collective/hierarchical/hierarchical_communicator.h"
#include "worker/collective/periodic_test_util.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr Duration kLong = seconds(30);

using Hosts = std::vector<int>;
const std::vector<Hosts> kShapes = {
    {0, 0, 1, 1}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 3, 3}, {0, 1, 0, 1}, {0, 0},
    {0, 1},
};

StatusOr<std::unique_ptr<Communicator>> Form(int rank, const Hosts& hosts,
                                             RendezvousStore* store) {
  auto options = TestOptions(rank, static_cast<int>(hosts.size()), store);
  options.key = "a key of this generation";
  return FormHierarchical(options, hosts);
}

// Ranks as threads.
void WithHosts(const Hosts& hosts,
               const std::function<void(Communicator*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(static_cast<int>(hosts.size()), [&](int rank) {
    auto formed = Form(rank, hosts, &store);
    ASSERT_TRUE(formed.ok()) << formed.status();
    fn(formed->get());
  });
}

// ---- Element types ----

float FromBits16(uint16_t bits, DataType type) {
  if (type == DataType::kBfloat16) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

// Small integers and halves: exact in every type.
constexpr size_t kPeriod = 23;
double Value(int rank, size_t i) {
  return static_cast<double>((rank * 7 + i * 3) % kPeriod);
}

uint16_t ToBits16(double value, DataType type) {
  if (type == DataType::kBfloat16) {
    const float narrow = static_cast<float>(value);
    uint32_t wide;
    std::memcpy(&wide, &narrow, sizeof(wide));
    return static_cast<uint16_t>(wide >> 16);
  }
  if (value == 0) return 0;
  int exponent;
  const double fraction = std::frexp(value, &exponent);  // [0.5, 1)
  return static_cast<uint16_t>(((exponent + 14) << 10) |
                               (static_cast<int>(fraction * 2048) & 1023));
}

void Store(void* data, DataType type, size_t i, double value) {
  switch (type) {
    case DataType::kFloat32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      break;
    case DataType::kFloat64:
      static_cast<double*>(data)[i] = value;
      break;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      static_cast<uint16_t*>(data)[i] = ToBits16(value, type);
      break;
    case DataType::kInt32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      break;
    case DataType::kInt64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      break;
    case DataType::kUint8:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
      break;
    case DataType::kInt8:
      static_cast<int8_t*>(data)[i] = static_cast<int8_t>(value);
      break;
    case DataType::kInt16:
      static_cast<int16_t*>(data)[i] = static_cast<int16_t>(value);
      break;
  }
}

double Load(const void* data, DataType type, size_t i) {
  switch (type) {
    case DataType::kFloat32:
      return static_cast<const float*>(data)[i];
    case DataType::kFloat64:
      return static_cast<const double*>(data)[i];
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return FromBits16(static_cast<const uint16_t*>(data)[i], type);
    case DataType::kInt32:
      return static_cast<const int32_t*>(data)[i];
    case DataType::kInt64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case DataType::kUint8:
      return static_cast<const uint8_t*>(data)[i];
    case DataType::kInt8:
      return static_cast<const int8_t*>(data)[i];
    case DataType::kInt16:
      return static_cast<const int16_t*>(data)[i];
  }
  return 0;
}

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64,
                               DataType::kFloat16, DataType::kBfloat16,
                               DataType::kInt32,   DataType::kInt64,
                               DataType::kUint8};

double Want(int n, size_t i, ReduceOp op) {
  double result = Value(0, i);
  for (int rank = 1; rank < n; ++rank) {
    const double v = Value(rank, i);
    result = op == ReduceOp::kMin   ? std::min(result, v)
             : op == ReduceOp::kMax ? std::max(result, v)
                                    : result + v;
  }
  return op == ReduceOp::kMean ? result / n : result;
}

// Of a mean in few bits; sums, minima and maxima here are exact.
double Tolerance(DataType type, ReduceOp op) {
  if (op != ReduceOp::kMean) return 0;
  if (type == DataType::kBfloat16) return 0.02;
  return type == DataType::kFloat16 ? 0.003 : 1e-6;
}

void StoreValues(DataType type, int rank, void* data, size_t count) {
  FillPeriodic(data, SizeOf(type), count, kPeriod,
               [&](size_t i) { Store(data, type, i, Value(rank, i)); });
}

// want(i) is what element i must be, to a part of it.
template <typename Want>
void ExpectElements(DataType type, const void* data, size_t first, size_t end,
                    double tolerance, const Want& want) {
  const size_t wrong =
      FirstWrong(data, SizeOf(type), first, end, kPeriod, [&](size_t i) {
        const double wanted = want(i);
        return std::abs(Load(data, type, i) - wanted) <= tolerance * wanted;
      });
  ASSERT_EQ(wrong, end) << Name(type) << " " << Load(data, type, wrong)
                        << " instead of " << want(wrong);
}

void CheckReductions(Communicator* c, DataType type, size_t count) {
  auto buffer = c->Allocate((count + 3) * SizeOf(type));
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  char* const data = static_cast<char*>((*buffer)->data) + 3 * SizeOf(type);
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
    if (op == ReduceOp::kMean && !IsFloat(type)) continue;
    for (const auto kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter}) {
      const bool scatter = kind == CollectiveKind::kReduceScatter;
      if (scatter && count % c->size() != 0) continue;
      StoreValues(type, c->rank(), data, count);
      const Status status = collective::Run(
          c, {.kind = kind, .slice = {*buffer, 3, count, type}, .op = op},
          kLong);
      ASSERT_TRUE(status.ok()) << status;
      const size_t part = count / c->size();
      const size_t begin = scatter ? c->rank() * part : 0;
      const size_t end = scatter ? begin + part : count;
      ASSERT_NO_FATAL_FAILURE(
          ExpectElements(type, data, begin, end, Tolerance(type, op),
                         [&](size_t i) { return Want(c->size(), i, op); }))
          << Name(kind);
    }
  }
}

void CheckMoves(Communicator* c, DataType type, size_t part) {
  const size_t count = part * c->size();
  auto buffer = c->Allocate((count + 1) * SizeOf(type));
  ASSERT_TRUE(buffer.ok());
  char* const data = static_cast<char*>((*buffer)->data) + SizeOf(type);
  const Slice slice{*buffer, 1, count, type};
  StoreValues(type, c->rank(), data, count);
  ASSERT_TRUE(
      collective::Run(c, {.kind = CollectiveKind::kAllGather, .slice = slice},
                      kLong)
          .ok());
  for (int rank = 0; rank < c->size(); ++rank) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectElements(type, data, rank * part, (rank + 1) * part, 0,
                       [&](size_t i) { return Value(rank, i); }))
        << rank;
  }
  for (int root = 0; root < c->size(); ++root) {
    StoreValues(type, c->rank(), data, count);
    ASSERT_TRUE(
        collective::Run(
            c,
            {.kind = CollectiveKind::kBroadcast, .slice = slice, .root = root},
            kLong)
            .ok());
    ASSERT_NO_FATAL_FAILURE(ExpectElements(
        type, data, 0, count, 0, [&](size_t i) { return Value(root, i); }))
        << root;
  }
}

TEST(HierarchicalTest, EveryTypeIsRight) {
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 1, 1}}) {
    WithHosts(hosts, [](Communicator* c) {
      EXPECT_EQ(c->backend(), "hierarchical");
      EXPECT_EQ(c->progress(), ProgressMode::kThread);
      for (const DataType type : kTypes) {
        for (const size_t count : {1, 12, 20001}) {
          CheckReductions(c, type, count);
        }
        for (const size_t part : {1, 3000}) CheckMoves(c, type, part);
      }
    });
  }
}

TEST(HierarchicalTest, EveryShapeIsRight) {
  for (const Hosts& hosts : kShapes) {
    WithHosts(hosts, [](Communicator* c) {
      for (const size_t count : {0, 1, 5, 12, 30000, 600'001}) {
        CheckReductions(c, DataType::kFloat32, count);
      }
      for (const size_t part : {0, 1, 70'000}) {
        CheckMoves(c, DataType::kFloat32, part);
      }
      EXPECT_TRUE(
          collective::Run(c, {.kind = CollectiveKind::kBarrier}, kLong).ok());
    });
  }
}

// Where the sum of a host would overflow.
TEST(HierarchicalTest, AMeanOfLargeHalvesIsOne) {
  for (const Hosts& hosts :
       {Hosts{0, 0, 1}, Hosts{0, 1, 1, 2, 2}, Hosts{0, 0, 1, 1}}) {
    WithHosts(hosts, [](Communicator* c) {
      constexpr DataType kType = DataType::kFloat16;
      // Exact; apart, so that a wrong weight shows.
      const auto value = [](int rank) { return 40000.0 + 4000 * rank; };
      const double want = 40000 + 2000 * (c->size() - 1);
      // Several chunks.
      for (const size_t count : {size_t{1}, size_t{1'300'001}}) {
        auto buffer = c->Allocate(count * SizeOf(kType));
        ASSERT_TRUE(buffer.ok());
        void* const data = (*buffer)->data;
        FillPeriodic(data, SizeOf(kType), count, 1, [&](size_t i) {
          Store(data, kType, i, value(c->rank()));
        });
        const Status status = collective::Run(
            c, {.slice = {*buffer, 0, count, kType}, .op = ReduceOp::kMean},
            kLong);
        ASSERT_TRUE(status.ok()) << status;
        // Rounded in the host, once weighted, and between the hosts.
        ASSERT_NO_FATAL_FAILURE(ExpectElements(
            kType, data, 0, count, 3 * 0x1p-11, [&](size_t) { return want; }));
      }
    });
  }
}

// Sums that round: the bits must be the same on all ranks and in all runs.
std::vector<std::string> BitsOf(const Hosts& hosts, DataType type) {
  std::vector<std::string> bits(hosts.size());
  WithHosts(hosts, [&](Communicator* c) {
    constexpr size_t kCount = 70001;
    auto buffer = c->Allocate(kCount * SizeOf(type));
    FillPeriodic((*buffer)->data, SizeOf(type), kCount, 7001, [&](size_t i) {
      const double value = std::sin(static_cast<double>(i * 13 + c->rank()));
      if (SizeOf(type) == 2) {
        Store((*buffer)->data, type, i, std::abs(value) + 0.001);
      } else {
        Store((*buffer)->data, type, i, value);
      }
    });
    ASSERT_TRUE(
        collective::Run(c, {.slice = {*buffer, 0, kCount, type}}, kLong).ok());
    bits[c->rank()].assign(static_cast<char*>((*buffer)->data),
                           kCount * SizeOf(type));
  });
  return bits;
}

TEST(HierarchicalTest, TheSameBitsOnAllRanksAndInAllRuns) {
  for (const Hosts& hosts : {Hosts{0, 0, 0, 1, 1, 1}, Hosts{0, 1, 1}}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      const auto first = BitsOf(hosts, type);
      const auto second = BitsOf(hosts, type);
      for (size_t rank = 0; rank < hosts.size(); ++rank) {
        EXPECT_TRUE(first[rank] == first[0]) << rank;
        EXPECT_TRUE(second[rank] == first[0]) << rank;
      }
    }
  }
}

TEST(HierarchicalTest, ManyAtOnceAndMemoryOfTheCallers) {
  WithHosts({0, 0, 1, 1}, [](Communicator* c) {
    constexpr size_t kCount = 40001;
    std::vector<float> own(kCount, static_cast<float>(c->rank()));
    auto registered = c->Register(own.data(), own.size() * 4);
    ASSERT_TRUE(registered.ok()) << registered.status();
    auto allocated = c->Allocate(kCount * 4 * 4);
    ASSERT_TRUE(allocated.ok());
    auto* const data = static_cast<float*>((*allocated)->data);
    std::fill(data, data + 4 * kCount, 1.0f);
    std::vector<std::unique_ptr<Work>> works;
    for (size_t i = 0; i < 4; ++i) {
      auto work = c->Start(
          {.slice = {*allocated, i * kCount, kCount, DataType::kFloat32}});
      ASSERT_TRUE(work.ok());
      works.push_back(std::move(*work));
    }
    auto work =
        c->Start({.slice = {*registered, 0, kCount, DataType::kFloat32}});
    ASSERT_TRUE(work.ok());
    works.push_back(std::move(*work));
    for (auto& started : works) {
      ASSERT_TRUE(started->Wait(MonotonicNow() + kLong).ok());
    }
    for (size_t i = 0; i < 4 * kCount; ++i) ASSERT_EQ(data[i], 4.0f);
    for (const float value : own) ASSERT_EQ(value, 6.0f);
    // What is not this communicator's.
    Buffer foreign{.data = own.data(), .bytes = own.size() * 4};
    EXPECT_EQ(c->Start({.slice = {&foreign, 0, 1, DataType::kFloat32}})
                  .status()
                  .code(),
              StatusCode::kInvalidArgument);
  });
}

TEST(HierarchicalTest, TellsHowItReducesAlikeOnAllRanks) {
  std::vector<std::string> plans(5);
  WithHosts({0, 1, 2, 3, 3},
            [&](Communicator* c) { plans[c->rank()] = c->Plan(); });
  EXPECT_THAT(plans[0], HasSubstr("5 ranks on 4 hosts"));
  for (const std::string& plan : plans) EXPECT_EQ(plan, plans[0]);
}

TEST(HierarchicalTest, MismatchesBetweenHostsAreRefusedOnAllRanks) {
  const auto refuses =
      [](const std::function<Operation(int, const Buffer*)>& operation) {
        WithHosts({0, 0, 1, 1}, [&](Communicator* c) {
          auto buffer = c->Allocate(4096 * 4);
          Status status =
              collective::Run(c, operation(c->rank(), *buffer), seconds(20));
          // A root is done once it has sent; it learns with the next one.
          if (status.ok()) {
            status = collective::Run(c, {.kind = CollectiveKind::kBarrier},
                                     seconds(20));
          }
          EXPECT_THAT(status.code(),
                      AnyOf(StatusCode::kFailedPrecondition,
                            StatusCode::kUnavailable, StatusCode::kAborted))
              << status;
        });
      };
  const auto sum = [](const Buffer* b, size_t count) {
    return Operation{.slice = {b, 0, count, DataType::kFloat32}};
  };
  // Two of one host against two of the other: alike within each.
  refuses(
      [&](int rank, const Buffer* b) { return sum(b, rank < 2 ? 100 : 104); });
  refuses([&](int rank, const Buffer* b) {
    Operation o = sum(b, 100);
    if (rank < 2) o.kind = CollectiveKind::kReduceScatter;
    return o;
  });
  refuses([&](int rank, const Buffer* b) {
    Operation o = sum(b, 100);
    o.kind = CollectiveKind::kBroadcast;
    o.root = rank < 2 ? 0 : 1;
    return o;
  });
  // And within a host.
  refuses(
      [&](int rank, const Buffer* b) { return sum(b, rank != 1 ? 100 : 104); });
}

TEST(HierarchicalTest, AbortEndsAllThatWait) {
  std::atomic<int> waiting{0};
  WithHosts({0, 0, 1, 1}, [&](Communicator* c) {
    if (c->rank() == 3) {  // Never starts.
      while (waiting < 3) std::this_thread::yield();
      c->Abort("rank 1 said so");
      return;
    }
    auto buffer = c->Allocate(1 << 20);
    auto work = c->Start({.slice = {*buffer, 0, 1 << 18, DataType::kFloat32}});
    ASSERT_TRUE(work.ok());
    std::thread aborter([&] {
      ++waiting;
      while (waiting < 3) std::this_thread::yield();
      c->Abort("rank 1 said so");
    });
    const MonoTime start = MonotonicNow();
    const Status status = (*work)->Wait(MonotonicNow() + kLong);
    EXPECT_LT(MonotonicNow() - start, seconds(10));
    EXPECT_FALSE(status.ok());
    aborter.join();
    const Status later =
        collective::Run(c, {.kind = CollectiveKind::kBarrier}, kLong);
    EXPECT_FALSE(later.ok());
  });
}

TEST(HierarchicalTest, ADeadlineNamesWhoIsMissing) {
  std::atomic<int> done{0};
  WithHosts({0, 0, 1, 1}, [&](Communicator* c) {
    // Rank 1 never starts: rank 0 waits for it in its host, rank 3 between.
    if (c->rank() != 1) {
      auto buffer = c->Allocate(1 << 20);
      const Status status = collective::Run(
          c, {.slice = {*buffer, 0, 1 << 18, DataType::kFloat32}},
          milliseconds(c->rank() == 0 ? 100 : 20000));
      EXPECT_FALSE(status.ok());
      if (c->rank() == 0) {
        EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
        EXPECT_THAT(Message(status), HasSubstr("rank 1"));
      }
    }
    ++done;
    while (done < 4) std::this_thread::yield();
  });
}

// Processes, for one is killed: the others learn it at once, by its number.
TEST(HierarchicalTest, ADeadRankIsNamed) {
  signal(SIGPIPE, SIG_IGN);
  char dir[] = "/tmp/lockstep-hierarchical-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const Hosts hosts = {0, 0, 1, 1};
  {
    RankProcesses ranks(4, [&](int rank) {
      DirectoryRendezvousStore store(dir);
      auto formed = Form(rank, hosts, &store);
      if (!formed.ok()) return 2;
      const Operation barrier{.kind = CollectiveKind::kBarrier};
      if (!collective::Run(formed->get(), barrier, kLong).ok()) return 3;
      if (!store.Put(fmt::format("formed-{}", rank), "").ok()) return 4;
      if (rank == 3) {
        for (;;) pause();
      }
      const Status status = collective::Run(formed->get(), barrier, kLong);
      if (status.code() != StatusCode::kUnavailable) return 5;
      // Rank 2 shares its host; the others hear of it by rank 2 or 3.
      const std::string text = Message(status);
      if (text.find("rank 3") == std::string::npos &&
          (rank == 2 || text.find("rank 2") == std::string::npos)) {
        fprintf(stderr, "rank %d: %s\n", rank, text.c_str());
        return 6;
      }
      return 0;
    });
    DirectoryRendezvousStore store(dir);
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(
          store.Get(fmt::format("formed-{}", rank), MonotonicNow() + kLong)
              .ok());
    }
    const MonoTime start = MonotonicNow();
    ranks.Signal(3, SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ranks.Join(rank, MonotonicNow() + kLong), 0) << "rank " << rank;
    }
    EXPECT_LT(MonotonicNow() - start, seconds(5));
  }
  std::filesystem::remove_all(dir);
}

TEST(HierarchicalTest, RefusesOtherHosts) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  for (const Hosts& hosts : {Hosts{0}, Hosts{0, 2}, Hosts{0, 1, 1}}) {
    EXPECT_EQ(
        FormHierarchical(TestOptions(0, 2, &store), hosts).status().code(),
        StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::hierarchical
