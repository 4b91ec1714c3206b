// Sends and receives.
#include <atomic>
#include <numeric>
#include <thread>

#include "worker/process_group/group_test_util.h"

namespace lockstep::worker::process_group {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MessageTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, MessageTest,
                         ::testing::Values("shm", "tcp", "hierarchical"),
                         [](const auto& info) { return info.param; });

std::shared_ptr<Work> Start(ProcessGroup* group, Collective collective,
                            int peer, uint32_t tag, const Span& span,
                            Type type = Type::kInt32, Duration timeout = {}) {
  Operation operation{.collective = collective,
                      .type = type,
                      .root = peer,
                      .tag = tag,
                      .timeout = timeout};
  (collective == Collective::kSend ? operation.input : operation.output) = {
      &span, 1};
  auto work = group->Start(operation);
  EXPECT_TRUE(work.ok()) << work.status();
  return work.ok() ? *work : nullptr;
}

Status Send(ProcessGroup* group, int peer, uint32_t tag, const Span& span,
            Type type = Type::kInt32) {
  return Start(group, Collective::kSend, peer, tag, span, type)
      ->Wait(Duration(-1));
}
Status Receive(ProcessGroup* group, int peer, uint32_t tag, const Span& span,
               Type type = Type::kInt32) {
  return Start(group, Collective::kReceive, peer, tag, span, type)
      ->Wait(Duration(-1));
}

TEST_P(MessageTest, ArriveWhateverTheirSize) {
  WithGroup(GetParam(), 2, [](ProcessGroup* group) {
    for (const size_t count : {0, 1, 1000, 300'000}) {
      std::vector<int32_t> values(count, -1);
      const Span span{values.data(), count};
      if (group->rank() == 0) {
        std::iota(values.begin(), values.end(), 7);
        ASSERT_EQ(Send(group, 1, 0, span), OkStatus());
        continue;
      }
      ASSERT_EQ(Receive(group, 0, 0, span), OkStatus());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], static_cast<int32_t>(i + 7));
      }
    }
  });
}

TEST_P(MessageTest, ArriveInLists) {
  WithGroup(GetParam(), 2, [](ProcessGroup* group) {
    const bool sends = group->rank() == 0;
    Array array(Type::kFloat64, 5000);
    array.Fill([&](size_t i) { return sends ? static_cast<double>(i) : 0; });
    const std::vector<Span> spans = array.Cut(sends ? 3 : 7);
    Operation operation{
        .collective = sends ? Collective::kSend : Collective::kReceive,
        .type = Type::kFloat64,
        .root = sends ? 1 : 0};
    (sends ? operation.input : operation.output) = spans;
    ASSERT_EQ(group->Run(operation), OkStatus());
    array.Join();
    for (size_t i = 0; i < array.count(); ++i) ASSERT_EQ(array.Get(i), i);
  });
}

TEST_P(MessageTest, AReceiveTakesTheFirstOfItsTag) {
  WithGroup(GetParam(), 2, [](ProcessGroup* group) {
    const std::vector<uint32_t> tags = {1, 2, 1, 3, 2};
    std::vector<int32_t> values = {10, 20, 11, 30, 21};
    if (group->rank() == 0) {
      for (size_t i = 0; i < tags.size(); ++i) {
        ASSERT_EQ(Send(group, 1, tags[i], {&values[i], 1}), OkStatus());
      }
      return;
    }
    for (const auto& [tag, want] : std::vector<std::pair<uint32_t, int32_t>>{
             {3, 30}, {2, 20}, {1, 10}, {2, 21}, {1, 11}}) {
      int32_t value = 0;
      ASSERT_EQ(Receive(group, 0, tag, {&value, 1}), OkStatus());
      EXPECT_EQ(value, want);
    }
  });
}

TEST_P(MessageTest, ReceivesThatWaitAreServedByTag) {
  WithGroup(GetParam(), 2, [](ProcessGroup* group) {
    int32_t values[] = {1, 2, 3};
    if (group->rank() == 0) {
      // Tag 9 is received last and sent last.
      for (const uint32_t tag : {8, 7, 9}) {
        ASSERT_EQ(Send(group, 1, tag, {&values[tag - 7], 1}), OkStatus());
      }
      return;
    }
    int32_t got[3] = {};
    std::vector<std::shared_ptr<Work>> works;
    for (const uint32_t tag : {9, 7, 8}) {
      works.push_back(
          Start(group, Collective::kReceive, 0, tag, {&got[tag - 7], 1}));
    }
    for (const auto& work : works) {
      ASSERT_EQ(work->Wait(Duration(-1)), OkStatus());
    }
    EXPECT_THAT(got, ::testing::ElementsAre(1, 2, 3));
  });
}

TEST_P(MessageTest, BothDirectionsAtOnce) {
  WithGroup(GetParam(), 3, [](ProcessGroup* group) {
    // Every rank sends to every other one before it receives.
    constexpr size_t kCount = 50'000;
    std::vector<std::vector<int32_t>> out(3);
    std::vector<std::vector<int32_t>> in(3);
    std::vector<std::shared_ptr<Work>> works;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == group->rank()) continue;
      out[peer].assign(kCount, group->rank() * 10 + peer);
      works.push_back(
          Start(group, Collective::kSend, peer, 0, {out[peer].data(), kCount}));
    }
    // Collectives do not wait for messages.
    ASSERT_EQ(group->Run({.collective = Collective::kBarrier}), OkStatus());
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == group->rank()) continue;
      in[peer].resize(kCount);
      works.push_back(Start(group, Collective::kReceive, peer, 0,
                            {in[peer].data(), kCount}));
    }
    for (const auto& work : works) {
      ASSERT_EQ(work->Wait(Duration(-1)), OkStatus());
    }
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == group->rank()) continue;
      EXPECT_EQ(in[peer],
                std::vector<int32_t>(kCount, peer * 10 + group->rank()));
    }
  });
}

TEST_P(MessageTest, AMismatchFailsTheReceiveAlone) {
  WithGroup(GetParam(), 2, [](ProcessGroup* group) {
    std::vector<int32_t> values(5, 4);
    if (group->rank() == 0) {
      ASSERT_EQ(Send(group, 1, 3, {values.data(), 5}), OkStatus());
      ASSERT_EQ(Send(group, 1, 4, {values.data(), 5}), OkStatus());
      ASSERT_EQ(Send(group, 1, 3, {values.data(), 5}), OkStatus());
      return;
    }
    const Status shorter = Receive(group, 0, 3, {values.data(), 4});
    EXPECT_TRUE(absl::IsFailedPrecondition(shorter)) << shorter;
    EXPECT_THAT(Message(shorter),
                AllOf(HasSubstr("rank 0 sent 5 int32 with tag 3"),
                      HasSubstr("receive of 4 int32 from rank 0 with tag 3")));
    const Status other =
        Receive(group, 0, 4, {values.data(), 5}, Type::kFloat32);
    EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
    EXPECT_THAT(Message(other), HasSubstr("5 float32"));
    EXPECT_EQ(Receive(group, 0, 3, {values.data(), 5}), OkStatus());
  });
}

TEST_P(MessageTest, AReceiveThatIsLateBreaksItsChannelOnly) {
  WithGroup(GetParam(), 2, [](ProcessGroup* group) {
    int32_t value = 1;
    const Span span{&value, 1};
    if (group->rank() == 1) {
      ASSERT_EQ(Receive(group, 0, 0, span), OkStatus());
      const Status late = Start(group, Collective::kReceive, 0, 1, span,
                                Type::kInt32, milliseconds(50))
                              ->Wait(Duration(-1));
      EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
      EXPECT_THAT(Message(late),
                  AllOf(HasSubstr("rank 0"),
                        HasSubstr("receive of 1 int32 from rank 0")));
      const Operation again{.collective = Collective::kReceive,
                            .type = Type::kInt32,
                            .root = 0,
                            .output = {&span, 1}};
      EXPECT_EQ(group->Start(again).status(), late);
      // The other direction and the collectives go on.
      ASSERT_EQ(Send(group, 0, 0, span), OkStatus());
    } else {
      ASSERT_EQ(Send(group, 1, 0, span), OkStatus());
      ASSERT_EQ(Receive(group, 1, 0, span), OkStatus());
    }
    EXPECT_EQ(group->Run({.collective = Collective::kBarrier}), OkStatus());
  });
}

TEST_P(MessageTest, ASenderThatNeverCameIsNamed) {
  WithGroup(GetParam(), 3, [](ProcessGroup* group) {
    int32_t value = 1;
    if (group->rank() == 1) {
      const Status late = Start(group, Collective::kReceive, 2, 1, {&value, 1},
                                Type::kInt32, milliseconds(50))
                              ->Wait(Duration(-1));
      EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
      EXPECT_THAT(Message(late),
                  AllOf(HasSubstr("rank 2"),
                        HasSubstr("receive of 1 int32 from rank 2")));
    }
    EXPECT_EQ(group->Run({.collective = Collective::kBarrier}), OkStatus());
  });
}

}  // namespace
}  // namespace lockstep::worker::process_group
