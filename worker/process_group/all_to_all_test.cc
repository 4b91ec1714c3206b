// All-to-alls of groups: all types, splits and forms of memory over every
// backend, large and small; and what happens to one in the middle.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "worker/process_group/group_test_util.h"
#include "worker/process_group/peer_parts.h"
#include "worker/process_group/split_matrix.h"

namespace lockstep::worker::process_group {
namespace {

using SplitFunction = std::function<size_t(int from, int to)>;

// The memory of a rank as bytes of elements.
enum class MemoryForm { kWhole, kOneSpanEach, kUnevenSpans };

// Several rounds of what the backends have room for.
constexpr size_t kLarge = collective::kSanitized ? 60'000 : 400'000;

unsigned char ByteFor(int from, int to, size_t i) {
  return static_cast<unsigned char>((i * 31 + i / 251 +
                                     static_cast<size_t>(from) * 101 +
                                     static_cast<size_t>(to) * 7) %
                                    253);
}

// One rank's lists of an all-to-all, and its own memory.
class Lists {
 public:
  Lists(ProcessGroup* group, const SplitFunction& split_of, Type type,
        MemoryForm input, MemoryForm output)
      : rank_(group->rank()),
        element_(Array::SizeOf(type)),
        form_in_(input),
        form_out_(output) {
    operation_.collective = Collective::kAllToAll;
    operation_.type = type;
    for (int peer = 0; peer < group->size(); ++peer) {
      sends_.push_back(split_of(rank_, peer));
      receives_.push_back(split_of(peer, rank_));
    }
    in_spans_ = Spread(sends_, input, &in_);
    out_spans_ = Spread(receives_, output, &out_);
    std::vector<char> all;
    for (size_t to = 0; to < sends_.size(); ++to) {
      for (size_t i = 0; i < sends_[to] * element_; ++i) {
        all.push_back(
            static_cast<char>(ByteFor(rank_, static_cast<int>(to), i)));
      }
    }
    size_t at = 0;
    for (const Span& span : in_spans_) {
      std::copy_n(all.data() + at, span.count * element_,
                  static_cast<char*>(span.data));
      at += span.count * element_;
    }
    operation_.input = in_spans_;
    operation_.output = out_spans_;
    operation_.input_splits = sends_;
    operation_.output_splits = receives_;
  }

  Operation& operation() { return operation_; }

  // "", or what is wrong.
  std::string Wrong() const {
    std::vector<char> all;
    for (const Span& span : out_spans_) {
      const char* const data = static_cast<const char*>(span.data);
      all.insert(all.end(), data, data + span.count * element_);
    }
    size_t at = 0;
    for (size_t from = 0; from < receives_.size(); ++from) {
      for (size_t i = 0; i < receives_[from] * element_; ++i, ++at) {
        if (static_cast<unsigned char>(all[at]) !=
            ByteFor(static_cast<int>(from), rank_, i)) {
          return fmt::format("byte {} from rank {}, forms {} and {}", i, from,
                             static_cast<int>(form_in_),
                             static_cast<int>(form_out_));
        }
      }
    }
    return "";
  }

 private:
  std::vector<Span> Spread(const std::vector<uint64_t>& splits, MemoryForm form,
                           std::vector<std::vector<uint64_t>>* memory) const {
    uint64_t all = 0;
    for (const uint64_t split : splits) all += split;
    std::vector<uint64_t> counts = {all};
    if (form == MemoryForm::kOneSpanEach) counts = splits;
    if (form == MemoryForm::kUnevenSpans) {
      counts = {all / 7, all / 2, all - all / 7 - all / 2};
    }
    std::vector<Span> spans;
    for (const uint64_t count : counts) {
      memory->emplace_back(count * element_ / sizeof(uint64_t) + 2);
      spans.push_back({memory->back().data(), count});
    }
    return spans;
  }

  const int rank_;
  const size_t element_;
  const MemoryForm form_in_;
  const MemoryForm form_out_;
  std::vector<uint64_t> sends_;
  std::vector<uint64_t> receives_;
  std::vector<std::vector<uint64_t>> in_;
  std::vector<std::vector<uint64_t>> out_;
  std::vector<Span> in_spans_;
  std::vector<Span> out_spans_;
  Operation operation_;
};

struct GroupSetup {
  const char* backend;
  int ranks;
};

class GroupAllToAllTest : public ::testing::TestWithParam<GroupSetup> {};
// Beyond 16 ranks tcp has none of its own.
INSTANTIATE_TEST_SUITE_P(
    Groups, GroupAllToAllTest,
    ::testing::Values(GroupSetup{"auto", 1}, GroupSetup{"shm", 2},
                      GroupSetup{"shm", 4}, GroupSetup{"tcp", 2},
                      GroupSetup{"tcp", 4}, GroupSetup{"tcp", 17},
                      GroupSetup{"hierarchical", 3},
                      GroupSetup{"hierarchical", 4}),
    [](const auto& info) {
      return fmt::format("{}{}", info.param.backend, info.param.ranks);
    });

TEST_P(GroupAllToAllTest, EveryElementGoesToItsPlace) {
  const int n = GetParam().ranks;
  const size_t large = kLarge / static_cast<size_t>(n);
  const std::vector<SplitFunction> splits = {
      [](int, int) { return 0; },
      [](int, int) { return 1; },
      [](int from, int to) { return (from * 5 + to * 3) % 7 * 200; },
      [large](int from, int to) {
        const bool much = from == 1 || to == 0;
        return much ? large + static_cast<size_t>(from) : to % 2;
      },
      [](int from, int to) { return from == to ? 9'000 : 0; },
      [large](int, int) { return large; },
  };
  WithGroup(GetParam().backend, n, [&](ProcessGroup* group) {
    for (size_t i = 0; i < splits.size(); ++i) {
      for (const Type type :
           {Type::kBool, Type::kInt16, Type::kFloat32, Type::kFloat64}) {
        // Ranks may have their memory in different forms.
        for (int form = 0; form < 3; ++form) {
          Lists lists(group, splits[i], type,
                      static_cast<MemoryForm>((form + group->rank()) % 3),
                      static_cast<MemoryForm>((form * 2 + group->rank()) % 3));
          ASSERT_EQ(group->Run(lists.operation()), OkStatus());
          ASSERT_EQ(lists.Wrong(), "") << "splits " << i;
        }
      }
    }
  });
}

TEST_P(GroupAllToAllTest, AnotherOperationIsFound) {
  if (GetParam().ranks == 1) GTEST_SKIP() << "it takes two";
  WithGroup(GetParam().backend, GetParam().ranks, [](ProcessGroup* group) {
    Lists lists(
        group, [](int, int) { return 40'000; }, Type::kInt32,
        MemoryForm::kWhole, MemoryForm::kWhole);
    if (group->rank() == 1) lists.operation().type = Type::kFloat32;
    const Status status = group->Run(lists.operation());
    EXPECT_FALSE(status.ok());
    // A rank that did not see it itself learns that another one has gone.
    if (absl::IsFailedPrecondition(status)) {
      EXPECT_THAT(Message(status), ::testing::HasSubstr("all-to-all of int32"));
    } else {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    }
  });
}

TEST_P(GroupAllToAllTest, AnAbortInTheMiddleEndsAllRanks) {
  std::atomic<int> made{0};
  std::atomic<int> ended{0};
  const int n = GetParam().ranks;
  WithGroup(GetParam().backend, n, [&](ProcessGroup* group) {
    Lists lists(
        group, [](int, int) { return 100'000; }, Type::kInt32,
        MemoryForm::kWhole, MemoryForm::kOneSpanEach);
    std::thread aborter;
    if (group->rank() == 0) {
      aborter = std::thread([&, group] {
        EXPECT_TRUE(collective::AwaitTrue([&] { return made >= 3 * n; }));
        group->Abort("no more");
      });
    }
    Status status;
    while (status.ok()) {
      status = group->Run(lists.operation());
      ++made;
    }
    if (group->rank() == 0) {
      EXPECT_TRUE(absl::IsAborted(status)) << status;
    } else {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    }
    if (aborter.joinable()) aborter.join();
    // Leaving is not what ends the others.
    ++ended;
    EXPECT_TRUE(collective::AwaitTrue([&] { return ended == n; }));
  });
}

TEST(PeerPartsTest, CopiesOnlyWhatLiesInSeveralSpans) {
  int32_t a[4] = {1, 2, 3, 4};
  int32_t b[3] = {5, 6, 7};
  const Span spans[] = {{a, 4}, {b, 3}};
  const auto list = SpanList::Of(spans, 4);
  ASSERT_TRUE(list.ok());
  const uint64_t splits[] = {2, 0, 4, 1};
  KeptMemory memory;
  const auto made = PeerParts::Of(*list, splits, 4, &memory);
  ASSERT_TRUE(made.ok());
  const auto parts = made->parts();
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].data, a);
  EXPECT_EQ(parts[1].count, 0u);
  EXPECT_EQ(parts[3].data, b + 2);
  made->Pack(*list);
  auto* const copy = static_cast<int32_t*>(parts[2].data);
  EXPECT_THAT(std::vector<int32_t>(copy, copy + 4),
              ::testing::ElementsAre(3, 4, 5, 6));
  copy[1] = 40;
  copy[2] = 50;
  made->Unpack(*list);
  EXPECT_EQ(a[3], 40);
  EXPECT_EQ(b[0], 50);
  EXPECT_EQ(b[2], 7);
}

TEST(PeerPartsTest, KnowTheMostThatLeavesARank) {
  // Rank 0 sends 2 and 3, rank 1 sends 1 and 9.
  const SplitMatrix splits(2, {2, 3, 2, 1, 1, 9, 3, 9});
  EXPECT_EQ(splits.Check(), OkStatus());
  EXPECT_EQ(splits.LargestToOthers(), 3u);
}

}  // namespace
}  // namespace lockstep::worker::process_group
