#include "server/core/member_gpus.h"

#include "server/core/membership_fixture.h"

namespace lockstep::server {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GpuTest : public MembershipTest {
 protected:
  // With those of three GPUs that are in `indices`.
  NodeInfo With(std::vector<int32_t> indices, uint64_t start) const {
    NodeInfo info = Node({start, start});
    info.boot_id = boot_id_;
    for (const int32_t i : indices) {
      info.gpus.push_back({i, "GPU-" + std::to_string(i), "NVIDIA H100", 80});
    }
    return info;
  }
  void Start(std::vector<int32_t> indices, uint64_t start) {
    ASSERT_TRUE(
        members_.Register(With(std::move(indices), start), clock_.Now()).ok());
  }
  std::vector<std::string> Said(Reason reason) {
    std::vector<std::string> said;
    for (const Event& event : members_.Find("a")->events) {
      if (event.reason == reason) said.push_back(event.message);
    }
    return said;
  }
  size_t Lost() { return members_.Find("a")->LostGpus(); }

  std::string boot_id_ = "boot";
};

TEST_F(GpuTest, OneThatIsGoneIsMissingUntilItIsBack) {
  Start({0, 1, 2}, 1);
  EXPECT_EQ(Lost(), 0u);
  Start({0, 2}, 2);
  EXPECT_THAT(Said(Reason::kNodeGpuLost),
              ElementsAre("GPU 1 (NVIDIA H100, GPU-1) is no longer offered: "
                          "the node has 2 of its 3 GPUs"));
  ASSERT_EQ(members_.Find("a")->missing_gpus.size(), 1u);
  EXPECT_EQ(members_.Find("a")->missing_gpus[0].uuid, "GPU-1");
  EXPECT_EQ(Lost(), 1u);
  Start({0, 2}, 3);
  EXPECT_EQ(Lost(), 1u) << "the next start forgets nothing";
  EXPECT_EQ(Said(Reason::kNodeGpuLost).size(), 1u) << "nor repeats it";
  Start({0, 1, 2}, 4);
  EXPECT_EQ(Lost(), 0u);
  EXPECT_THAT(Said(Reason::kNodeGpuBack),
              ElementsAre("GPU 1 (NVIDIA H100, GPU-1) is offered again"));
}

// After one has gone the driver numbers the others anew.
TEST_F(GpuTest, ItIsKnownByItsUuid) {
  Start({0, 1, 2}, 1);
  NodeInfo info = With({0, 2}, 2);
  info.gpus[1].index = 1;
  ASSERT_TRUE(members_.Register(info, clock_.Now()).ok());
  ASSERT_EQ(members_.Find("a")->missing_gpus.size(), 1u);
  EXPECT_EQ(members_.Find("a")->missing_gpus[0].uuid, "GPU-1");
}

TEST_F(GpuTest, OneThatDoesNotAnswerIsLost) {
  Start({0, 1}, 1);
  GpuUsage alive;
  alive.utilization = 0.5;
  GpuUsage silent;
  silent.index = 1;
  readings_.gpus = {alive, silent};
  ASSERT_TRUE(Beat({1, 1}).ok());
  const uint64_t news = members_.Find("a")->news;
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_EQ(members_.Find("a")->news, news) << "said once";
  EXPECT_THAT(Said(Reason::kNodeGpuLost),
              ElementsAre(HasSubstr("GPU 1 (NVIDIA H100, GPU-1) does not")));
  EXPECT_EQ(Lost(), 1u);
  readings_.gpus[1].utilization = 0;
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_EQ(Said(Reason::kNodeGpuBack).size(), 1u);
  EXPECT_EQ(Lost(), 0u);
}

TEST_F(GpuTest, ErrorsAreEventsAndBounded) {
  Start({0, 1}, 1);
  readings_.gpu_errors = {{1, 13}};
  ASSERT_TRUE(Beat({1, 1}).ok());
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_THAT(Said(Reason::kNodeGpuError),
              ElementsAre("GPU 1 (NVIDIA H100, GPU-1): the driver reported Xid "
                          "13"));
  EXPECT_EQ(Lost(), 0u) << "13 is the program's own fault";
  clock_.Advance(600s);
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_EQ(Said(Reason::kNodeGpuError).size(), 2u) << "it goes on";
  readings_.gpu_errors.clear();
  for (int32_t i = 0; i < 256; ++i) readings_.gpu_errors.push_back({0, i});
  ASSERT_TRUE(Beat({1, 1}).ok());
  // 8 more, and that GPU 0 gets no new work.
  EXPECT_EQ(Said(Reason::kNodeGpuError).size(), 11u);
  EXPECT_THAT(members_.Find("a")->BadGpus(), ElementsAre(0))
      << "48 is among those that are not told";
  EXPECT_EQ(Lost(), 0u) << "it is withheld, and there";
}

TEST_F(GpuTest, OneThatIsNotFreeGetsNoWorkUntilItIs) {
  Start({0, 1}, 1);
  GpuReclaim reclaim;
  reclaim.index = 1;
  reclaim.job = "resnet";
  HeldProcess process{4711, "ann", "python", "D", "nv_wait", {}, {}, "resnet"};
  reclaim.processes = {process};
  readings_.reclaims = {reclaim};
  ASSERT_TRUE(Beat({1, 1}).ok());
  const Member& member = *members_.Find("a");
  EXPECT_THAT(member.BadGpus(), ElementsAre(1)) << "at once";
  EXPECT_THAT(member.FaultyGpus(), IsEmpty());
  EXPECT_EQ(Lost(), 0u);
  EXPECT_EQ(member.StateOf(member.info.gpus[1]), GpuState::kReclaim);
  EXPECT_EQ(member.GpuTrouble(member.info.gpus[1]),
            "reclaim: process 4711 (python, user ann, state D in nv_wait, job "
            "resnet) still uses it");
  EXPECT_TRUE(member.TakesWork());
  EXPECT_THAT(Said(Reason::kNodeGpuReclaim), IsEmpty()) << "it may be over";
  clock_.Advance(5s);
  ASSERT_TRUE(Beat({1, 1}).ok());
  clock_.Advance(5s);
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_THAT(
      Said(Reason::kNodeGpuReclaim),
      ElementsAre(HasSubstr("GPU 1 (NVIDIA H100, GPU-1) is not free 5.0 "
                            "s after its rank of resnet ended")));
  readings_.reclaims.clear();
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_THAT(member.BadGpus(), IsEmpty());
  EXPECT_THAT(Said(Reason::kNodeGpuFree),
              ElementsAre(HasSubstr("is free again after 10.0 s")));
  // A short one is no event at all.
  readings_.reclaims = {reclaim};
  ASSERT_TRUE(Beat({1, 1}).ok());
  readings_.reclaims.clear();
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_EQ(Said(Reason::kNodeGpuFree).size(), 1u);
  // A registration says it before the first beat.
  ASSERT_TRUE(members_.Register(With({0, 1}, 2), clock_.Now(), {reclaim}).ok());
  EXPECT_THAT(member.BadGpus(), ElementsAre(1));
}

TEST_F(GpuTest, AStuckProcessIsAnEventAndSoIsItsEnd) {
  Start({0}, 1);
  HeldProcess process{4711, "ann", "python", "D", "nfs_wait", {}, {}, "j"};
  readings_.stuck_processes = {process};
  ASSERT_TRUE(Beat({1, 1}).ok());
  ASSERT_TRUE(Beat({1, 1}).ok());
  readings_.stuck_processes.clear();
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_THAT(Said(Reason::kNodeStuckProcess),
              ElementsAre("SIGKILL does not end process 4711 (python, user "
                          "ann, state D in nfs_wait, job j)",
                          "process 4711 has ended"));
}

TEST_F(GpuTest, AVerdictEndsByItselfAndIsStored) {
  Start({0, 1}, 1);
  GpuUsage usage;
  usage.index = 1;
  usage.uncorrected_errors = 0;
  usage.utilization = 0;
  readings_.gpus = {usage};
  ASSERT_TRUE(Beat({1, 1}).ok());
  readings_.gpus[0].uncorrected_errors = 1;
  ASSERT_TRUE(Beat({1, 1}).ok());
  const auto bad = [&] { return members_.Find("a")->BadGpus(); };
  EXPECT_THAT(bad(), ElementsAre(1));
  EXPECT_THAT(Said(Reason::kNodeGpuWithheld),
              ElementsAre(HasSubstr("1 uncorrected memory error: no new work "
                                    "goes to it until ")));
  const Gpu gpu = members_.Find("a")->info.gpus[1];
  EXPECT_THAT(gpu.fault, HasSubstr("1 uncorrected memory error at "));
  EXPECT_EQ(gpu.fault_end, clock_.Now().wall + 1h);
  // A coordinator that starts again, and a daemon that does.
  members_.Restore(members_.Find("a")->Record(), clock_.Now());
  Start({0, 1}, 2);
  EXPECT_THAT(bad(), ElementsAre(1));
  EXPECT_EQ(members_.Find("a")->info.gpus[1].fault_end, gpu.fault_end);
  // A fatal error has no end.
  clock_.Advance(1h);
  Expire();
  EXPECT_THAT(bad(), IsEmpty());
  // This daemon cannot check it.
  EXPECT_THAT(Said(Reason::kNodeGpuReturned),
              ElementsAre(HasSubstr("gets work again without a check (its "
                                    "daemon cannot check GPUs) after: 1 ")));
}

TEST_F(GpuTest, AFatalErrorOutlastsAVerdict) {
  Start({0, 1}, 1);
  GpuUsage usage;
  usage.index = 1;
  usage.utilization = 0;
  usage.remap_pending = true;
  readings_.gpus = {usage};
  ASSERT_TRUE(Beat({1, 1}).ok());
  ASSERT_TRUE(members_.Find("a")->info.gpus[1].fault_end);
  readings_.gpu_errors = {{1, 79}};
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_FALSE(members_.Find("a")->info.gpus[1].fault_end);
  EXPECT_THAT(members_.Find("a")->info.gpus[1].fault, HasSubstr("Xid 79"));
  clock_.Advance(48h);
  Expire();
  EXPECT_THAT(members_.Find("a")->FaultyGpus(), ElementsAre(1));
}

TEST_F(GpuTest, AnOperatorLiftsOneGpu) {
  Start({0, 1}, 1);
  readings_.gpu_errors = {{0, 79}, {1, 79}};
  ASSERT_TRUE(Beat({1, 1}).ok());
  members_.LiftFaults("a", {1});
  const NodeRecord lifted = LiftFaults(members_.Find("a")->Record(), {1},
                                       "user/ann", clock_.Now().wall);
  members_.Apply(lifted);
  EXPECT_THAT(members_.Find("a")->BadGpus(), ElementsAre(0));
  EXPECT_THAT(
      Said(Reason::kNodeGpuReturned),
      ElementsAre("GPU 1 (NVIDIA H100, GPU-1) cleared by user/ann: gets "
                  "work again"));
  EXPECT_EQ(LiftFaults(lifted, {1}, "user/ann", clock_.Now().wall), lifted);
}

// What stands is still so, and the operator knows.
TEST_F(GpuTest, ALiftOutlastsACoordinatorADaemonAndABoot) {
  Start({0, 1}, 1);
  GpuUsage usage;
  usage.index = 1;
  usage.utilization = 0;
  usage.remap_failed = true;
  readings_.gpus = {usage};
  ASSERT_TRUE(Beat({1, 1}).ok());
  const auto bad = [&] { return members_.Find("a")->BadGpus(); };
  ASSERT_THAT(bad(), ElementsAre(1));
  members_.LiftFaults("a", {1});
  members_.Apply(LiftFaults(members_.Find("a")->Record(), {1}, "user/ann",
                            clock_.Now().wall));
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_THAT(bad(), IsEmpty());
  // Another coordinator has the record, and no history of the GPU.
  Membership later{MembershipOptions{}};
  later.Restore(members_.Find("a")->Record(), clock_.Now());
  const auto start = [&](uint64_t number) {
    ASSERT_TRUE(later.Register(With({0, 1}, number), clock_.Now()).ok());
    ASSERT_TRUE(
        later.Beat("a", {number, number}, readings_, clock_.Now()).ok());
  };
  start(2);
  EXPECT_THAT(later.Find("a")->BadGpus(), IsEmpty());
  boot_id_ = "another boot";
  start(3);
  EXPECT_THAT(later.Find("a")->BadGpus(), IsEmpty());
  clock_.Advance(24h);
  start(4);
  EXPECT_THAT(later.Find("a")->BadGpus(), ElementsAre(1))
      << "it does not hold for ever";
}

TEST_F(GpuTest, JobsThatDieOnOneGpuWithholdIt) {
  Start({0, 1}, 1);
  const std::vector<Membership::GpuRef> gpus = {{"a", 0}, {"a", 1}};
  for (const char* uid : {"u1", "u2"}) {
    EXPECT_THAT(members_.NoteRun(gpus, {{"a", 1}}, uid, clock_.Now()),
                IsEmpty());
  }
  EXPECT_THAT(members_.NoteRun(gpus, {{"a", 1}}, "u2", clock_.Now()),
              ElementsAre("a"));
  EXPECT_THAT(members_.Find("a")->BadGpus(), ElementsAre(1));
  EXPECT_THAT(
      members_.NoteRun({{"gone", 3}}, {{"gone", 3}}, "u2", clock_.Now()),
      IsEmpty());
}

TEST_F(GpuTest, FatalErrorLastsUntilABootOrUndrain) {
  Start({0, 1}, 1);
  readings_.gpu_errors = {{1, 79}};
  ASSERT_TRUE(Beat({1, 1}).ok());
  const auto bad = [&] { return members_.Find("a")->BadGpus(); };
  EXPECT_THAT(bad(), ElementsAre(1));
  EXPECT_THAT(members_.Find("a")->info.gpus[1].fault, HasSubstr("Xid 79 at "));
  EXPECT_THAT(Said(Reason::kNodeGpuError),
              ElementsAre(HasSubstr("Xid 79 is fatal"),
                          HasSubstr("the driver reported Xid 79")));
  EXPECT_TRUE(members_.Find("a")->TakesWork()) << "its other GPUs are well";
  readings_.gpu_errors.clear();
  ASSERT_TRUE(Beat({1, 1}).ok());
  EXPECT_THAT(bad(), ElementsAre(1)) << "silence since is no cure";
  // Neither is another start of the daemon.
  Start({0, 1}, 2);
  EXPECT_THAT(bad(), ElementsAre(1));
  const NodeRecord cleared = UndrainNode(members_.Find("a")->Record(), false,
                                         "user/ann", clock_.Now().wall);
  EXPECT_THAT(cleared.events.back().message,
              HasSubstr("GPU 1 (NVIDIA H100, GPU-1) cleared by user/ann"));
  members_.Apply(cleared);
  EXPECT_THAT(bad(), testing::IsEmpty());
  readings_.gpu_errors = {{0, 119}};
  ASSERT_TRUE(Beat({2, 2}).ok());
  EXPECT_THAT(bad(), ElementsAre(0));
  // Nor that it was away for a while.
  Start({1}, 2);
  Start({0, 1}, 2);
  EXPECT_THAT(bad(), ElementsAre(0));
  boot_id_ = "another boot";
  Start({0, 1}, 3);
  EXPECT_THAT(bad(), testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
