#include "server/core/node_approval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/membership.h"
#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kGiB = int64_t{1} << 30;

class NodeApprovalTest : public testing::Test {
 protected:
  // The daemon starts again, and offers this.
  void Offer(double cpus, int64_t gib, std::vector<int32_t> gpus = {}) {
    NodeInfo info;
    info.name = "a";
    info.incarnation = {++starts_, 7};
    info.boot_id = "boot";
    info.capacity = {cpus, gib * kGiB, static_cast<int32_t>(gpus.size()), ""};
    for (const int32_t gpu : gpus) {
      info.gpus.push_back({gpu, "GPU-" + std::to_string(gpu), "H100", kGiB});
    }
    Register(info);
  }
  void Register(const NodeInfo& info) {
    const Status status = members_.Register(info, clock_.Now());
    ASSERT_TRUE(status.ok()) << Message(status);
  }
  void Approve() {
    members_.Apply(ApproveNode(Node().Record(), "user/ann", clock_.Now().wall));
  }
  const Member& Node() { return *members_.Find("a"); }
  std::vector<int32_t> Gpus() {
    std::vector<int32_t> gpus;
    for (const Gpu& gpu : Node().info.gpus) gpus.push_back(gpu.index);
    return gpus;
  }
  std::vector<std::string> Said(Reason reason) {
    std::vector<std::string> said;
    for (const Event& event : Node().events) {
      if (event.reason == reason) said.push_back(event.message);
    }
    return said;
  }

  FakeClock clock_;
  uint64_t starts_ = 0;
  Membership members_{MembershipOptions()};
};

TEST_F(NodeApprovalTest, ANewNodeIsTakenAtItsWordUpToTheLimit) {
  Offer(1024, 16 << 10, {0, 1, 2, 3});
  EXPECT_EQ(Node().info.capacity, (Resources{1024, kGiB << 14, 4, ""}));
  EXPECT_FALSE(Node().offered);
  EXPECT_THAT(Said(Reason::kNodeGrew), IsEmpty());
}

TEST_F(NodeApprovalTest, ANewNodeThatClaimsTheWorldIsCut) {
  std::vector<int32_t> gpus;
  for (int32_t i = 0; i < 20; ++i) gpus.push_back(i);
  Offer(65536, int64_t{1} << 30, gpus);
  EXPECT_EQ(Node().info.capacity, kDefaultNodeLimit);
  EXPECT_THAT(Gpus(), SizeIs(16));
  ASSERT_TRUE(Node().offered);
  EXPECT_EQ(*Node().offered, (Resources{65536, int64_t{1} << 60, 20, ""}));
  EXPECT_THAT(Said(Reason::kNodeGrew),
              ElementsAre(AllOf(HasSubstr("offers 65536 cpus"),
                                HasSubstr("of which 1024 cpus"),
                                HasSubstr("lockstep nodes approve a"))));
  Approve();
  EXPECT_EQ(Node().info.capacity.cpus, 65536);
  EXPECT_THAT(Gpus(), SizeIs(20));
  EXPECT_FALSE(Node().offered);
  EXPECT_THAT(Said(Reason::kNodeApproved),
              ElementsAre(HasSubstr("approved by user/ann: 65536 cpus")));
}

// What is listed can be used, whatever the count says.
TEST_F(NodeApprovalTest, GpusBesideTheCountAreCut) {
  NodeInfo info;
  info.name = "a";
  info.incarnation = {1, 1};
  for (int32_t i = 0; i < 40; ++i) info.gpus.push_back({i, "", "H100", kGiB});
  Register(info);
  EXPECT_THAT(Gpus(), SizeIs(16));
  EXPECT_EQ(Node().offered->gpus, 40);
}

TEST_F(NodeApprovalTest, GrowthWaitsAndTheRestIsUsed) {
  Offer(8, 64, {0, 1});
  Offer(16, 128, {0, 1, 2});
  EXPECT_EQ(Node().info.capacity, (Resources{8, 64 * kGiB, 2, ""}));
  EXPECT_THAT(Gpus(), ElementsAre(0, 1));
  EXPECT_THAT(Said(Reason::kNodeGrew), SizeIs(1));
  Offer(16, 128, {0, 1, 2});
  EXPECT_THAT(Said(Reason::kNodeGrew), SizeIs(1)) << "said once";
  EXPECT_EQ(Node().info.capacity.cpus, 8) << "asking again helps nothing";
  Approve();
  EXPECT_EQ(Node().info.capacity, (Resources{16, 128 * kGiB, 3, ""}));
  EXPECT_THAT(Gpus(), ElementsAre(0, 1, 2));
  Offer(16, 128, {0, 1, 2});
  EXPECT_FALSE(Node().offered) << "approval lasts";
  EXPECT_THAT(Said(Reason::kNodeGpuLost), IsEmpty());
}

TEST_F(NodeApprovalTest, ALostGpuThatComesBackNeedsNone) {
  Offer(8, 64, {0, 1, 2});
  Offer(4, 32, {0, 2});
  EXPECT_EQ(Node().info.capacity.cpus, 4);
  EXPECT_FALSE(Node().offered);
  Offer(8, 64, {0, 1, 2});
  EXPECT_EQ(Node().info.capacity, (Resources{8, 64 * kGiB, 3, ""}));
  EXPECT_THAT(Gpus(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(Node().offered);
  EXPECT_THAT(Said(Reason::kNodeGrew), IsEmpty());
  EXPECT_THAT(Said(Reason::kNodeGpuBack), SizeIs(1));
}

// Jobs may run on those that were there.
TEST_F(NodeApprovalTest, GpusThatWereThereGoFirst) {
  Offer(8, 64, {2, 3});
  Offer(8, 64, {0, 1, 2, 3});
  EXPECT_THAT(Gpus(), ElementsAre(2, 3));
  EXPECT_EQ(Node().info.capacity.gpus, 2);
}

TEST_F(NodeApprovalTest, AnotherKernelsMemoryIsNoGrowthButDoesNotCreep) {
  Offer(8, 640);
  Offer(8, 650);
  EXPECT_EQ(Node().info.capacity.memory_bytes, 650 * kGiB);
  EXPECT_FALSE(Node().offered);
  Offer(8, 660);
  EXPECT_TRUE(Node().offered);
  EXPECT_EQ(Node().info.capacity.memory_bytes, 640 * kGiB);
}

TEST_F(NodeApprovalTest, ANodeFromBeforeApprovalsKeepsWhatItHad) {
  NodeRecord old;
  old.info.name = "a";
  old.info.capacity = {2048, 64 * kGiB, 1, ""};
  old.info.gpus = {{0, "GPU-0", "H100", kGiB}};
  old.missing_gpus = {{1, "GPU-1", "H100", kGiB}};
  members_.Restore(old, clock_.Now());
  Offer(2048, 64, {0, 1});
  EXPECT_EQ(Node().info.capacity, (Resources{2048, 64 * kGiB, 2, ""}));
  EXPECT_FALSE(Node().offered);
  Offer(2049, 64, {0, 1});
  EXPECT_TRUE(Node().offered);
}

TEST_F(NodeApprovalTest, NothingWaitsNothingChanges) {
  Offer(8, 64);
  const NodeRecord before = Node().Record();
  EXPECT_EQ(ApproveNode(before, "user/ann", clock_.Now().wall), before);
}

// A fault is not cleared by waiting for approval.
TEST_F(NodeApprovalTest, AWithheldGpuKeepsItsFault) {
  Offer(8, 64, {0, 1});
  NodeReadings readings;
  GpuUsage alive;
  alive.utilization = 0.5;
  readings.gpus = {alive, alive};
  readings.gpus[1].index = 1;
  readings.gpu_errors = {{1, 79}};
  ASSERT_TRUE(members_.Beat("a", {starts_, 7}, readings, clock_.Now()).ok());
  ASSERT_THAT(Node().BadGpus(), ElementsAre(1));
  Offer(8, 64, {0, 1, 2});
  Approve();
  EXPECT_THAT(Node().info.gpus[1].fault, HasSubstr("Xid 79"));
}

}  // namespace
}  // namespace lockstep::server
