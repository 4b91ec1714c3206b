#include "server/core/member_checks.h"

#include "server/core/membership_fixture.h"

namespace lockstep::server {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckTest : public MembershipTest {
 protected:
  CheckTest() { Start(/*checks=*/true); }

  void Start(bool checks) {
    NodeInfo info = Node({++start_, start_});
    info.boot_id = "boot";
    info.checks_gpus = checks;
    for (int32_t i = 0; i < 3; ++i) {
      info.gpus.push_back({i, "GPU-" + std::to_string(i), "H100", 80});
    }
    ASSERT_TRUE(members_.Register(info, clock_.Now()).ok());
  }
  // GPU 1 is withheld for an hour, which is over now.
  void Withhold() {
    GpuUsage usage;
    usage.index = 1;
    usage.utilization = 0;
    usage.uncorrected_errors = 0;
    readings_.gpus = {usage};
    ASSERT_TRUE(Beat().ok());
    readings_.gpus[0].uncorrected_errors = 1;
    ASSERT_TRUE(Beat().ok());
    ASSERT_THAT(At().BadGpus(), ElementsAre(1));
    clock_.Advance(1h);
    ASSERT_TRUE(Beat().ok());
    Expire();
  }
  Status Beat() { return MembershipTest::Beat({start_, start_}); }
  const Member& At() { return *members_.Find("a"); }
  std::vector<int32_t> Due(const std::set<int32_t>& held = {}) {
    return DueChecks(At(), held, clock_.Now());
  }
  void Begin(std::vector<int32_t> gpus, bool asked = false,
             std::optional<int32_t> partner = {}) {
    members_.BeginCheck("a", {7, std::move(gpus), kGpuCheckWithin, partner},
                        asked, clock_.Now());
  }
  std::vector<GpuCheck> End(GpuCheckAnswer answer) {
    return members_.EndCheck("a", answer, clock_.Now());
  }
  static GpuCheck Found(int32_t gpu, const std::string& failure = "") {
    GpuCheck check{gpu};
    check.took = 21s;
    check.parts = {{"memory", 1875, "GB/s"}, {"matmul", 31, "TFLOP/s"}};
    check.parts[1].failure = failure;
    return check;
  }
  std::vector<std::string> Said(Reason reason) {
    std::vector<std::string> said;
    for (const Event& event : At().events) {
      if (event.reason == reason) said.push_back(event.message);
    }
    return said;
  }

  uint64_t start_ = 0;
};

TEST_F(CheckTest, AWithheldGpuIsCheckedBeforeItReturns) {
  Withhold();
  EXPECT_THAT(At().BadGpus(), ElementsAre(1)) << "it waits for its check";
  EXPECT_THAT(At().GpuTrouble(At().info.gpus[1]), HasSubstr("until a check"));
  EXPECT_THAT(Due(), ElementsAre(1));
  EXPECT_THAT(Due({1}), IsEmpty()) << "a job holds it";
  EXPECT_EQ(PartnerFor(At(), {1}, {0}), 2);
  EXPECT_FALSE(PartnerFor(At(), {1}, {0, 2}));
  EXPECT_FALSE(PartnerFor(At(), {0, 1}, {})) << "they have each other";
  Begin({1}, /*asked=*/false, 2);
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_THAT(At().BadGpus(), ElementsAre(1, 2));
  EXPECT_EQ(At().StateOf(At().info.gpus[1]), GpuState::kChecking);
  EXPECT_THAT(At().GpuTrouble(At().info.gpus[2]), HasSubstr("helps to check"));
  Expire();
  EXPECT_THAT(Due(), IsEmpty()) << "a check is under way";
  const std::vector<GpuCheck> checks = End({7, OkStatus(), {Found(1)}});
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].uuid, "GPU-1");
  EXPECT_EQ(checks[0].failure, "");
  EXPECT_THAT(At().BadGpus(), IsEmpty());
  EXPECT_THAT(
      Said(Reason::kNodeGpuChecked),
      ElementsAre(HasSubstr("GPU 1 (H100, GPU-1) passed a check of 21.0 s: "
                            "memory 1875 GB/s, matmul 31 TFLOP/s; gets work "
                            "again after: 1 uncorrected memory error at ")));
  EXPECT_EQ(At().checking.last.at(1), checks[0]);
  EXPECT_EQ(At().checking.passed, 1u);
}

TEST_F(CheckTest, AnOperatorsWordEndsTheWait) {
  Withhold();
  ASSERT_THAT(Due(), ElementsAre(1));
  members_.Apply(LiftFaults(At().Record(), {1}, "user/ann", clock_.Now().wall));
  Expire();
  EXPECT_THAT(Due(), IsEmpty());
}

TEST_F(CheckTest, OneThatFailsIsWithheldForLonger) {
  Withhold();
  Begin({1});
  const std::vector<GpuCheck> checks =
      End({7, OkStatus(), {Found(1, "element 7 is 3, not 4")}});
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].failure, "matmul: element 7 is 3, not 4");
  const Gpu& gpu = At().info.gpus[1];
  EXPECT_THAT(gpu.fault, HasSubstr("failed a check: matmul: element 7 is 3, "
                                   "not 4 at "));
  EXPECT_EQ(gpu.fault_end, clock_.Now().wall + 2h);
  EXPECT_EQ(At().StateOf(gpu), GpuState::kWithheld);
  EXPECT_THAT(Said(Reason::kNodeGpuChecked),
              ElementsAre("GPU 1 (H100, GPU-1) failed a check: matmul: element "
                          "7 is 3, not 4"));
  EXPECT_THAT(Said(Reason::kNodeGpuWithheld).back(),
              HasSubstr("failed a check: matmul: element 7 is 3, not 4: no new "
                        "work goes to it until "));
  EXPECT_EQ(At().checking.failed, 1u);
  clock_.Advance(2h);
  ASSERT_TRUE(Beat().ok());
  Expire();
  EXPECT_THAT(Due(), ElementsAre(1));
}

TEST_F(CheckTest, WhatIsSeenMeanwhileCounts) {
  Withhold();
  Begin({0, 1, 2}, /*asked=*/true);
  readings_.gpus[0].uncorrected_errors = 3;
  readings_.gpu_errors = {{0, 79}};
  ASSERT_TRUE(Beat().ok());
  EXPECT_EQ(At().StateOf(At().info.gpus[1]), GpuState::kChecking);
  const auto checks = End({7, OkStatus(), {Found(0), Found(1), Found(2)}});
  ASSERT_EQ(checks.size(), 3u);
  EXPECT_EQ(checks[1].failure, "2 uncorrected memory errors");
  EXPECT_EQ(At().info.gpus[1].fault_end, clock_.Now().wall + 2h);
  // An Xid has no end, whatever a check says.
  EXPECT_FALSE(At().info.gpus[0].fault_end);
  EXPECT_THAT(At().info.gpus[0].fault, HasSubstr("Xid 79"));
  EXPECT_EQ(At().info.gpus[2].fault, "");
}

TEST_F(CheckTest, WhatStandsIsNoBetterAfterAShortCheck) {
  GpuUsage usage;
  usage.index = 1;
  usage.utilization = 0;
  usage.remap_failed = true;
  readings_.gpus = {usage};
  ASSERT_TRUE(Beat().ok());
  Begin({1}, /*asked=*/true);
  const auto checks = End({7, OkStatus(), {Found(1)}});
  EXPECT_EQ(checks.at(0).failure, "a row of its memory could not be replaced");
  EXPECT_THAT(At().BadGpus(), ElementsAre(1));
  // Unless an operator has lifted it.
  members_.Apply(LiftFaults(At().Record(), {1}, "user/ann", clock_.Now().wall));
  Begin({1}, /*asked=*/true);
  EXPECT_EQ(End({7, OkStatus(), {Found(1)}}).at(0).failure, "");
}

TEST_F(CheckTest, AnOperatorsCheckClearsAFaultWithoutEnd) {
  readings_.gpu_errors = {{0, 79}, {2, 48}};
  ASSERT_TRUE(Beat().ok());
  readings_.gpu_errors.clear();
  Begin({0, 2}, /*asked=*/true);
  End({7, OkStatus(), {Found(0), Found(2, "it hangs")}});
  EXPECT_THAT(At().BadGpus(), ElementsAre(2));
  EXPECT_THAT(At().info.gpus[2].fault, HasSubstr("Xid 48"));
  EXPECT_FALSE(At().info.gpus[2].fault_end);
}

TEST_F(CheckTest, WithoutAResultNothingIsKnown) {
  Withhold();
  Begin({1}, false, 2);
  EXPECT_THAT(End({7, Unavailable("its stream broke")}), IsEmpty());
  EXPECT_THAT(At().BadGpus(), ElementsAre(1)) << "no work, and not the partner";
  EXPECT_THAT(Due(), IsEmpty()) << "not at once again";
  clock_.Advance(kGpuCheckPause);
  EXPECT_THAT(Due(), ElementsAre(1));
  // What will not be checked later either is as before checks.
  Begin({1});
  End({7, Unimplemented("no CUDA driver")});
  EXPECT_THAT(At().BadGpus(), IsEmpty());
  EXPECT_THAT(Said(Reason::kNodeGpuReturned),
              ElementsAre(HasSubstr("gets work again without a check (no CUDA "
                                    "driver) after: 1 uncorrected")));
  EXPECT_THAT(Said(Reason::kNodeGpuChecked), IsEmpty());
}

TEST_F(CheckTest, ADaemonThatDoesNotAnswerInTimeIsAFailure) {
  Withhold();
  Begin({1});
  EXPECT_THAT(End({7, DeadlineExceeded("no answer within 75 s")}), IsEmpty());
  EXPECT_THAT(At().info.gpus[1].fault,
              HasSubstr("failed a check: no answer within 75 s"));
  EXPECT_EQ(At().info.gpus[1].fault_end, clock_.Now().wall + 2h);
  // An operator gets the error, and the GPU stays as it is.
  Begin({0}, /*asked=*/true);
  End({7, DeadlineExceeded("no answer within 75 s")});
  EXPECT_EQ(At().info.gpus[0].fault, "");
}

TEST_F(CheckTest, AnotherOrdersAnswerEndsNothing) {
  Begin({0}, /*asked=*/true);
  EXPECT_THAT(End({8, OkStatus(), {Found(0)}}), IsEmpty());
  EXPECT_EQ(At().StateOf(At().info.gpus[0]), GpuState::kChecking);
  // Nor is a GPU taken that was not in the order, or twice.
  EXPECT_EQ(End({7, OkStatus(), {Found(1), Found(0), Found(0)}}).size(), 1u);
}

TEST_F(CheckTest, ASilentNodesGpusWaitForIt) {
  Withhold();
  Start(/*checks=*/false);
  Withhold();
  EXPECT_THAT(At().BadGpus(), IsEmpty()) << "its daemon is now an old one";
  readings_.gpus[0].uncorrected_errors = 2;
  ASSERT_TRUE(Beat().ok());
  clock_.Advance(4s);
  Expire();
  ASSERT_EQ(State(), NodeState::kUnknown);
  clock_.Advance(4h);
  Expire();
  EXPECT_THAT(At().FaultyGpus(), ElementsAre(1));
  ASSERT_TRUE(Beat().ok());
  Expire();
  EXPECT_THAT(At().FaultyGpus(), IsEmpty());
}

TEST_F(CheckTest, WhatMayBeChecked) {
  const auto may = [&](std::vector<int32_t> gpus, std::set<int32_t> held) {
    return MayCheck(At(), gpus, held);
  };
  EXPECT_THAT(*may({}, {1}), ElementsAre(0, 2));
  EXPECT_THAT(*may({2, 0, 2}, {1}), ElementsAre(0, 2));
  EXPECT_EQ(may({3}, {}).status().code(), StatusCode::kInvalidArgument);
  const Status held = may({0, 1}, {1}).status();
  EXPECT_EQ(held.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(held),
            "node a: a job holds GPU 1: wait for its end, or drain the node");
  EXPECT_THAT(Message(may({}, {0, 1, 2}).status()),
              HasSubstr("no GPU to check now: a job holds GPU 0"));
  Begin({0}, /*asked=*/true);
  EXPECT_THAT(Message(may({0}, {}).status()), HasSubstr("in a check already"));
  GpuReclaim reclaim;
  reclaim.index = 2;
  readings_.reclaims = {reclaim};
  ASSERT_TRUE(Beat().ok());
  EXPECT_THAT(Message(may({2}, {}).status()), HasSubstr("GPU 2 is not free"));
  EXPECT_THAT(*may({}, {}), ElementsAre(1));
  Start(/*checks=*/false);
  EXPECT_EQ(may({1}, {}).status().code(), StatusCode::kUnimplemented);
  clock_.Advance(1h);
  Expire();
  EXPECT_EQ(may({1}, {}).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace lockstep::server
