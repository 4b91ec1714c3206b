// What fails, on which ranks, and what the errors say.
#include <atomic>
#include <thread>

#include "worker/process_group/group_test_util.h"

namespace lockstep::worker::process_group {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class FailureTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, FailureTest,
                         ::testing::Values("shm", "tcp", "hierarchical"),
                         [](const auto& info) { return info.param; });

// An all-reduce in place of `values`.
Operation SumOf(const Span* span, Duration timeout = {}) {
  return {.input = {span, 1}, .output = {span, 1}, .timeout = timeout};
}

TEST_P(FailureTest, DifferentOperationsAreNamedOnAllRanks) {
  const std::vector<std::function<void(Operation*)>> changes = {
      [](Operation* o) { o->op = ReduceOp::kProduct; },
      [](Operation* o) { o->type = Type::kInt32; },
      [](Operation* o) {
        o->collective = Collective::kReduce;
        o->root = 1;
      },
      [](Operation* o) { o->type = Type::kBool; },
  };
  for (const auto& change : changes) {
    WithGroup(GetParam(), 2, [&](ProcessGroup* group) {
      std::vector<float> values(64);
      const Span span{values.data(), 5};
      Operation operation = SumOf(&span);
      if (group->rank() == 1) change(&operation);
      const Status status = group->Run(operation);
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(Message(status),
                  AllOf(HasSubstr("all-reduce (sum) of 5 float32"),
                        HasSubstr("rank 0"), HasSubstr("rank 1"),
                        AnyOf(HasSubstr("(product)"), HasSubstr("int32"),
                              HasSubstr("reduce (sum) of 5 float32 to rank 1"),
                              HasSubstr("5 bool"))));
      // And from now on.
      EXPECT_EQ(group->Run({.collective = Collective::kBarrier}), status);
      EXPECT_EQ(group->Start(operation).status(), status);
    });
  }
}

TEST_P(FailureTest, DifferentSplitsAreNamedOnAllRanks) {
  WithGroup(GetParam(), 2, [](ProcessGroup* group) {
    std::vector<float> in(4);
    std::vector<float> out(4);
    const Span input{in.data(), 4};
    const Span output{out.data(), 4};
    const std::vector<uint64_t> splits = {1, 3};
    Operation operation{.collective = Collective::kAllToAll,
                        .input = {&input, 1},
                        .output = {&output, 1}};
    if (group->rank() == 1) operation.input_splits = splits;
    const Status status = group->Run(operation);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(
        Message(status),
        AllOf(HasSubstr("all-to-all of float32"),
              HasSubstr("rank 1 sends 1 elements to rank 0, which expects 2")));
  });
}

TEST_P(FailureTest, OwnMistakesLeaveTheGroupUsable) {
  WithGroup(GetParam(), 2, [](ProcessGroup* group) {
    std::vector<float> values(5, 1);
    const Span span{values.data(), 5};
    Operation wrong = SumOf(&span);
    wrong.output = {};
    EXPECT_TRUE(absl::IsInvalidArgument(group->Run(wrong)));
    wrong.cookie = 5;
    const Status status = group->Start(wrong).status();
    EXPECT_THAT(Message(status), HasSubstr("group test: all-reduce (sum)"));
    EXPECT_EQ(group->Run(SumOf(&span)), OkStatus());
    EXPECT_EQ(values[4], 2);
  });
}

TEST_P(FailureTest, ALateRankIsNamed) {
  std::atomic<bool> gave_up{false};
  WithGroup(GetParam(), 2, [&](ProcessGroup* group) {
    std::vector<float> values(5);
    const Span span{values.data(), 5};
    if (group->rank() == 1) {
      EXPECT_TRUE(collective::AwaitTrue([&] { return gave_up.load(); }));
      return;
    }
    Operation operation = SumOf(&span, milliseconds(50));
    operation.collective = Collective::kReduce;
    const Status status = group->Run(operation);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("group test: "), HasSubstr("rank 1"),
                      HasSubstr("reduce (sum) of 5 float32 to rank 0")));
    EXPECT_EQ(group->Start(operation).status(), status);
    gave_up.store(true);
  });
}

TEST_P(FailureTest, APeerThatIsGoneIsNamed) {
  FormedGroup groups(GetParam(), 2);
  std::vector<float> values(5);
  const Span span{values.data(), 5};
  const auto work = groups[0]->Start(SumOf(&span));
  ASSERT_TRUE(work.ok()) << work.status();
  groups.Free(1);
  const Status status = (*work)->Wait(seconds(30));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("rank 1"),
                    HasSubstr("during all-reduce (sum) of 5 float32")));
  EXPECT_EQ(groups[0]->Run(SumOf(&span)), status);
}

TEST_P(FailureTest, AbortEndsAll) {
  FormedGroup groups(GetParam(), 2);
  std::vector<float> values(500);
  const Span span{values.data(), 500};
  std::vector<std::shared_ptr<Work>> works;
  for (int i = 0; i < 3; ++i) {
    auto work = groups[0]->Start(SumOf(&span));
    ASSERT_TRUE(work.ok());
    works.push_back(*work);
  }
  for (const Collective message : {Collective::kSend, Collective::kReceive}) {
    Operation operation{.collective = message, .root = 1};
    (message == Collective::kSend ? operation.input : operation.output) = {
        &span, 1};
    auto work = groups[0]->Start(operation);
    ASSERT_TRUE(work.ok());
    works.push_back(*work);
  }
  EXPECT_EQ(ReasonOf(works[0]->Wait(Duration::zero())), kReasonNotEnded);
  EXPECT_FALSE(works[4]->ended());
  groups[0]->Abort("no more");
  groups[0]->Abort("not this");
  for (const auto& work : works) {
    const Status status = work->Wait(seconds(20));
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_EQ(Message(status), "group test: no more");
    EXPECT_TRUE(work->ended());
  }
  EXPECT_TRUE(absl::IsAborted(groups[0]->Run(SumOf(&span))));
  // The peer learns it.
  const Status status = groups[1]->Run(SumOf(&span));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("rank 0"),
                    ::testing::Not(HasSubstr("group test: group test"))));
}

TEST_P(FailureTest, FreeEndsWhatIsUnderWay) {
  FormedGroup groups(GetParam(), 2);
  std::vector<float> values(500);
  const Span span{values.data(), 500};
  Operation operation = SumOf(&span);
  operation.cookie = 3;
  const auto first = groups[0]->Start(operation);
  const auto second = groups[0]->Start(SumOf(&span));
  const auto receive = groups[0]->Start(
      {.collective = Collective::kReceive, .root = 1, .output = {&span, 1}});
  ASSERT_TRUE(first.ok() && second.ok() && receive.ok());
  groups.Free(0);
  for (const auto& work : {*first, *second, *receive}) {
    EXPECT_TRUE(absl::IsAborted(work->Wait(Duration::zero())))
        << work->Wait(Duration::zero());
  }
}

TEST_P(FailureTest, GroupsLeaveNothingBehind) {
  collective::Usage first;
  const int rounds = collective::kSanitized ? 5 : 20;
  for (int round = 0; round < rounds; ++round) {
    WithGroup(GetParam(), 2, [&](ProcessGroup* group) {
      std::vector<float> values(500);
      const Span span{values.data(), 500};
      EXPECT_EQ(group->Run(SumOf(&span)), OkStatus());
      const bool sends = group->rank() == 0;
      Operation message{
          .collective = sends ? Collective::kSend : Collective::kReceive,
          .root = 1 - group->rank()};
      (sends ? message.input : message.output) = {&span, 1};
      EXPECT_EQ(group->Run(message), OkStatus());
    });
    if (round == 1) first = collective::UsageNow();
  }
  EXPECT_EQ(collective::CheckNoGrowth(first), OkStatus());
}

}  // namespace
}  // namespace lockstep::worker::process_group
