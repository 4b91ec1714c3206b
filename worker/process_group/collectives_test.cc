// Every collective and type, over every backend, in one piece and in lists.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "worker/process_group/group_test_util.h"

namespace lockstep::worker::process_group {
namespace {

constexpr Type kTypes[] = {Type::kFloat32,  Type::kFloat64, Type::kFloat16,
                           Type::kBfloat16, Type::kInt32,   Type::kInt64,
                           Type::kUint8,    Type::kInt8,    Type::kInt16,
                           Type::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kMean, ReduceOp::kProduct};

// Whole numbers, whose sums and products of 4 are exact in every type.
double Input(Type type, int rank, size_t i) {
  const size_t mixed = i * 7 + static_cast<size_t>(rank) * 13 + i / 5;
  return type == Type::kBool ? static_cast<double>(mixed % 4 != 0)
                             : static_cast<double>(mixed % 3 + 1);
}

double Want(Type type, ReduceOp op, int n, size_t i) {
  double result = Input(type, 0, i);
  for (int rank = 1; rank < n; ++rank) {
    const double next = Input(type, rank, i);
    if (op == ReduceOp::kMin) result = std::min(result, next);
    if (op == ReduceOp::kMax) result = std::max(result, next);
    if (op == ReduceOp::kProduct) result *= next;
    if (op == ReduceOp::kSum || op == ReduceOp::kMean) result += next;
  }
  if (type == Type::kBool) return std::min(result, 1.0);
  return op == ReduceOp::kMean ? result / n : result;
}

bool HasMean(Type type) {
  return type == Type::kFloat32 || type == Type::kFloat64 ||
         type == Type::kFloat16 || type == Type::kBfloat16;
}

// Of a mean; the others are exact.
double Tolerance(Type type, ReduceOp op) {
  if (op != ReduceOp::kMean) return 0;
  if (type == Type::kBfloat16) return 0.02;
  return type == Type::kFloat16 ? 0.003 : 1e-6;
}

// Sanitizers are slow at elements.
constexpr size_t kSome = collective::kSanitized ? 203 : 2021;
constexpr size_t kMore = collective::kSanitized ? 2003 : 5003;

struct Setup {
  const char* backend;
  int ranks;
};

class EveryBackend : public ::testing::TestWithParam<Setup> {
 protected:
  void Run(const std::function<void(ProcessGroup*)>& fn) {
    WithGroup(GetParam().backend, GetParam().ranks, fn);
  }
};
INSTANTIATE_TEST_SUITE_P(
    Groups, EveryBackend,
    ::testing::Values(Setup{"auto", 1}, Setup{"shm", 2}, Setup{"shm", 3},
                      Setup{"tcp", 2}, Setup{"tcp", 3},
                      Setup{"hierarchical", 3}, Setup{"hierarchical", 4}),
    [](const auto& info) {
      return fmt::format("{}{}", info.param.backend, info.param.ranks);
    });

// How the spans of an operation lie in memory.
struct Shape {
  size_t input_pieces;
  size_t output_pieces;
  bool in_place;
};
constexpr Shape kShapes[] = {
    {1, 1, true}, {1, 1, false}, {3, 1, false}, {1, 4, false}, {5, 5, true}};

// Runs `operation` on arrays, cut as `shape` says.
Status RunShaped(ProcessGroup* group, Operation operation, const Shape& shape,
                 Array* input, Array* output) {
  std::vector<Span> in;
  std::vector<Span> out;
  if (input != nullptr) {
    in = shape.input_pieces == 1 ? input->Whole()
                                 : input->Cut(shape.input_pieces);
  }
  if (shape.in_place && output != nullptr) {
    out = in;
  } else if (output != nullptr) {
    out = shape.output_pieces == 1 ? output->Whole()
                                   : output->Cut(shape.output_pieces);
  }
  operation.input = in;
  operation.output = out;
  const Status status = group->Run(operation);
  if (shape.in_place && output != nullptr) {
    if (shape.input_pieces > 1) input->Join();
    *output = *input;
  } else if (output != nullptr && shape.output_pieces > 1) {
    output->Join();
  }
  return status;
}

void ExpectReduced(const Operation& operation, int n, size_t first,
                   const Array& output) {
  for (size_t i = 0; i < output.count(); ++i) {
    ASSERT_NEAR(output.Get(i), Want(operation.type, operation.op, n, first + i),
                Tolerance(operation.type, operation.op) * 4)
        << "type " << static_cast<int>(operation.type) << " op "
        << static_cast<int>(operation.op) << " element " << i;
  }
  EXPECT_TRUE(output.Intact());
}

void CheckAllReduce(ProcessGroup* group, Type type, ReduceOp op, size_t count) {
  const Operation operation{.type = type, .op = op};
  for (const Shape& shape : kShapes) {
    // Ranks cut their memory as they like.
    Shape mine = shape;
    if (group->rank() == 1 && !shape.in_place) {
      std::swap(mine.input_pieces, mine.output_pieces);
    }
    Array input(type, count);
    Array output(type, count);
    input.Fill([&](size_t i) { return Input(type, group->rank(), i); });
    ASSERT_EQ(RunShaped(group, operation, mine, &input, &output), OkStatus());
    ASSERT_NO_FATAL_FAILURE(ExpectReduced(operation, group->size(), 0, output));
    if (shape.in_place) continue;
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(input.Get(i), Input(type, group->rank(), i));
    }
  }
}

TEST_P(EveryBackend, AllReduceOfEveryType) {
  Run([](ProcessGroup* group) {
    for (const Type type : kTypes) {
      for (const ReduceOp op : kOps) {
        if (op == ReduceOp::kMean && !HasMean(type)) continue;
        for (const size_t count : {size_t{0}, size_t{1}, kMore}) {
          ASSERT_NO_FATAL_FAILURE(CheckAllReduce(group, type, op, count));
        }
      }
    }
    if (collective::kSanitized) return;
    CheckAllReduce(group, Type::kFloat32, ReduceOp::kSum, 300'007);
  });
}

TEST_P(EveryBackend, ReduceGivesTheRootTheResult) {
  Run([](ProcessGroup* group) {
    for (const Type type : {Type::kFloat32, Type::kInt16, Type::kBool}) {
      for (int root = 0; root < group->size(); ++root) {
        const Operation operation{
            .collective = Collective::kReduce, .type = type, .root = root};
        for (const Shape& shape : kShapes) {
          const bool mine = root == group->rank();
          Array input(type, 1003);
          Array output(type, 1003);
          input.Fill([&](size_t i) { return Input(type, group->rank(), i); });
          ASSERT_EQ(RunShaped(group, operation, shape, &input,
                              mine ? &output : nullptr),
                    OkStatus());
          if (mine) {
            ASSERT_NO_FATAL_FAILURE(
                ExpectReduced(operation, group->size(), 0, output));
            continue;
          }
          for (size_t i = 0; i < input.count(); ++i) {
            ASSERT_EQ(input.Get(i), Input(type, group->rank(), i));
          }
        }
      }
    }
  });
}

TEST_P(EveryBackend, BroadcastAndScatter) {
  Run([](ProcessGroup* group) {
    const int n = group->size();
    const size_t parts = n;
    for (const Type type : kTypes) {
      const int root = static_cast<int>(type) % n;
      for (const Shape& shape : kShapes) {
        if (shape.in_place) continue;
        for (const size_t count : {size_t{0}, size_t{1}, kSome}) {
          for (const bool scatter : {false, true}) {
            const Operation operation{
                .collective =
                    scatter ? Collective::kScatter : Collective::kBroadcast,
                .type = type,
                .root = root};
            const bool mine = root == group->rank();
            Array input(type, scatter ? count * parts : count);
            Array output(type, count);
            input.Fill([&](size_t i) { return Input(type, root, i); });
            ASSERT_EQ(
                RunShaped(group, operation, shape, mine ? &input : nullptr,
                          mine && !scatter ? nullptr : &output),
                OkStatus());
            if (mine && !scatter) continue;
            const size_t first = scatter ? group->rank() * count : 0;
            for (size_t i = 0; i < count; ++i) {
              ASSERT_EQ(output.Get(i), Input(type, root, first + i));
            }
            EXPECT_TRUE(output.Intact());
          }
        }
      }
    }
  });
}

TEST_P(EveryBackend, AllGatherAndGather) {
  Run([](ProcessGroup* group) {
    const size_t n = group->size();
    for (const Type type : kTypes) {
      const int root = static_cast<int>(type) % group->size();
      for (const Shape& shape : kShapes) {
        if (shape.in_place) continue;
        for (const size_t count : {size_t{0}, size_t{1}, kSome}) {
          for (const bool all : {false, true}) {
            const Operation operation{.collective = all ? Collective::kAllGather
                                                        : Collective::kGather,
                                      .type = type,
                                      .root = root};
            const bool mine = all || root == group->rank();
            Array input(type, count);
            Array output(type, count * n);
            input.Fill([&](size_t i) { return Input(type, group->rank(), i); });
            ASSERT_EQ(RunShaped(group, operation, shape, &input,
                                mine ? &output : nullptr),
                      OkStatus());
            for (size_t i = 0; mine && i < count * n; ++i) {
              ASSERT_EQ(output.Get(i),
                        Input(type, static_cast<int>(i / count), i % count));
            }
            EXPECT_TRUE(output.Intact());
          }
        }
      }
    }
  });
}

TEST_P(EveryBackend, AllGatherOfAPartOfItsOutput) {
  Run([](ProcessGroup* group) {
    const size_t n = group->size();
    std::vector<int32_t> values(1000 * n, -1);
    int32_t* const own = values.data() + 1000 * group->rank();
    std::iota(own, own + 1000, 1000 * group->rank());
    const Span input{own, 1000};
    const Span output{values.data(), values.size()};
    ASSERT_EQ(group->Run({.collective = Collective::kAllGather,
                          .type = Type::kInt32,
                          .input = {&input, 1},
                          .output = {&output, 1}}),
              OkStatus());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<int32_t>(i));
    }
  });
}

TEST_P(EveryBackend, ReduceScatterGivesEachRankItsPart) {
  Run([](ProcessGroup* group) {
    const size_t n = group->size();
    for (const Type type : kTypes) {
      for (const ReduceOp op : kOps) {
        if (op == ReduceOp::kMean && !HasMean(type)) continue;
        for (const Shape& shape : kShapes) {
          if (shape.in_place) continue;
          for (const size_t count : {size_t{0}, size_t{1}, kSome}) {
            const Operation operation{.collective = Collective::kReduceScatter,
                                      .type = type,
                                      .op = op};
            Array input(type, count * n);
            Array output(type, count);
            input.Fill([&](size_t i) { return Input(type, group->rank(), i); });
            ASSERT_EQ(RunShaped(group, operation, shape, &input, &output),
                      OkStatus());
            ASSERT_NO_FATAL_FAILURE(ExpectReduced(
                operation, group->size(), group->rank() * count, output));
            for (size_t i = 0; i < input.count(); ++i) {
              ASSERT_EQ(input.Get(i), Input(type, group->rank(), i));
            }
          }
        }
      }
    }
  });
}

// What rank `from` sends to rank `to`.
size_t SplitOf(int from, int to) { return (from * 5 + to * 3) % 7 * 100; }

TEST_P(EveryBackend, AllToAllWithSplits) {
  Run([](ProcessGroup* group) {
    const int n = group->size();
    const int me = group->rank();
    std::vector<uint64_t> sends;
    std::vector<uint64_t> expects;
    for (int rank = 0; rank < n; ++rank) {
      sends.push_back(SplitOf(me, rank));
      expects.push_back(SplitOf(rank, me));
    }
    for (const Type type : {Type::kInt64, Type::kFloat16, Type::kBool}) {
      for (const Shape& shape : kShapes) {
        if (shape.in_place) continue;
        Array input(type, std::accumulate(sends.begin(), sends.end(), 0ul));
        Array output(type,
                     std::accumulate(expects.begin(), expects.end(), 0ul));
        input.Fill([&](size_t i) { return Input(type, me, i); });
        const Operation operation{.collective = Collective::kAllToAll,
                                  .type = type,
                                  .input_splits = sends,
                                  .output_splits = expects};
        ASSERT_EQ(RunShaped(group, operation, shape, &input, &output),
                  OkStatus());
        size_t at = 0;
        for (int rank = 0; rank < n; ++rank) {
          size_t first = 0;
          for (int to = 0; to < me; ++to) first += SplitOf(rank, to);
          for (size_t i = 0; i < expects[rank]; ++i, ++at) {
            ASSERT_EQ(output.Get(at), Input(type, rank, first + i))
                << "from rank " << rank;
          }
        }
        EXPECT_TRUE(output.Intact());
      }
    }
  });
}

TEST_P(EveryBackend, AllToAllInPlace) {
  Run([](ProcessGroup* group) {
    const size_t n = group->size();
    // The largest one takes several blocks.
    for (const size_t part : {0, 1, 700, 60'000}) {
      std::vector<int32_t> values(part * n);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<int32_t>(group->rank() * 100'000 + i);
      }
      const Span span{values.data(), values.size()};
      ASSERT_EQ(group->Run({.collective = Collective::kAllToAll,
                            .type = Type::kInt32,
                            .input = {&span, 1},
                            .output = {&span, 1}}),
                OkStatus());
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i],
                  static_cast<int32_t>(i / part * 100'000 +
                                       group->rank() * part + i % part));
      }
    }
  });
}

TEST_P(EveryBackend, ABarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  Run([&](ProcessGroup* group) {
    for (int round = 1; round <= 20; ++round) {
      arrived.fetch_add(1);
      ASSERT_EQ(group->Run({.collective = Collective::kBarrier}), OkStatus());
      ASSERT_GE(arrived.load(), round * group->size());
    }
  });
}

// Longer than one chunk of the staging memory, in lists and in one piece.
TEST(LargeTest, EveryCollectiveInChunks) {
  if (collective::kSanitized) GTEST_SKIP() << "slow at 100 million elements";
  constexpr Shape kLists{3, 2, false};
  const size_t part = kChunkBytes / 4 + 12'345;
  WithGroup("shm", 2, [&](ProcessGroup* group) {
    const auto value = [](int rank, size_t i) {
      return static_cast<double>(i % 1000 + rank);
    };
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduce, Collective::kBroadcast,
          Collective::kAllGather, Collective::kReduceScatter,
          Collective::kGather, Collective::kScatter, Collective::kAllToAll}) {
      const int me = group->rank();
      const bool many_in = collective == Collective::kReduceScatter ||
                           collective == Collective::kScatter ||
                           collective == Collective::kAllToAll;
      const bool many_out = collective == Collective::kAllGather ||
                            collective == Collective::kGather ||
                            collective == Collective::kAllToAll;
      const bool root_in = collective == Collective::kBroadcast ||
                           collective == Collective::kScatter;
      const bool root_out = collective == Collective::kReduce ||
                            collective == Collective::kGather;
      Array input(Type::kInt32, many_in ? 2 * part : part);
      Array output(Type::kInt32, many_out ? 2 * part : part);
      input.Fill([&](size_t i) { return value(me, i); });
      const bool has_in = !root_in || me == 0;
      const bool has_out = collective == Collective::kBroadcast ? me == 1
                           : root_out                           ? me == 0
                                                                : true;
      ASSERT_EQ(
          RunShaped(group, {.collective = collective, .type = Type::kInt32},
                    kLists, has_in ? &input : nullptr,
                    has_out ? &output : nullptr),
          OkStatus());
      for (size_t i = 0; has_out && i < output.count(); ++i) {
        double want = 0;
        const size_t mine = me * part + i;
        switch (collective) {
          case Collective::kAllReduce:
          case Collective::kReduce:
            want = value(0, i) + value(1, i);
            break;
          case Collective::kReduceScatter:
            want = value(0, mine) + value(1, mine);
            break;
          case Collective::kBroadcast:
            want = value(0, i);
            break;
          case Collective::kScatter:
            want = value(0, mine);
            break;
          case Collective::kAllToAll:
            want = value(static_cast<int>(i / part), me * part + i % part);
            break;
          default:
            want = value(static_cast<int>(i / part), i % part);
        }
        ASSERT_EQ(output.Get(i), want)
            << "collective " << static_cast<int>(collective) << " element "
            << i;
      }
      EXPECT_TRUE(output.Intact());
    }
  });
}

}  // namespace
}  // namespace lockstep::worker::process_group
