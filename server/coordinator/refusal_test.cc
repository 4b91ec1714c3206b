// A job that a node has no room for: a full disk, a GPU that is still held.
#include <gmock/gmock.h>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using testing::SizeIs;

class RefusalTest : public CoordinatorTest {
 protected:
  RefusalTest() {
    Connect(&a_);
    Connect(&b_);
    MustSubmit(ProgramSpec("p", {Role(TaskType::kChief, 1, {0, 1, 0, ""})}));
    Run();
    EXPECT_EQ(State("p"), JobState::kRunning);
    a_.refuses = Cause{Reason::kNoCapacity, "the disk is full"};
    MustSubmit(Wide("j"));
    Run();
  }
  Duration Wait() {
    const Job job = Get("j");
    return job.not_before ? *job.not_before - clock_.Now().wall : Duration{};
  }
  // Until it was refused just now, and backs off for long.
  void AwaitLongWait() {
    for (int i = 0; i < 600 && Wait() < 20s; ++i) Pass(1s);
    ASSERT_GE(Wait(), 20s);
    ASSERT_EQ(State("j"), JobState::kPlacing);
  }
};

TEST_F(RefusalTest, ItIsTriedLessAndLessOftenAndLeavesLittle) {
  Pass(1h, 1s);
  EXPECT_GT(Get("j").generation, 100u);
  EXPECT_LT(Get("j").generation, 180u) << "1,800 of 2 s";
  EXPECT_THAT(Get("j").attempts, SizeIs(kPassingRefusalsKept));
  EXPECT_THAT(Get("j").lineage, SizeIs(2)) << "no rank was started";
  EXPECT_LT(Get("j").events.size(), 40u);
  EXPECT_EQ(Get("j").failures_without_progress, 0);
  a_.refuses.reset();
  Pass(32s);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

TEST_F(RefusalTest, ANodeThatComesEndsTheWait) {
  AwaitLongWait();
  a_.refuses.reset();
  FakeDaemon c("c", {2, int64_t{8} << 30, 0, ""});
  all_.push_back(&c);
  Connect(&c);
  Pass(3s);
  EXPECT_EQ(State("j"), JobState::kRunning);
  c.Disconnect();
  all_.pop_back();
}

TEST_F(RefusalTest, RanksOfAnotherJobThatEndEndTheWait) {
  AwaitLongWait();
  a_.refuses.reset();
  Pass(3s);
  EXPECT_EQ(State("j"), JobState::kPlacing) << "nobody said so";
  for (FakeDaemon* daemon : all_) {
    if (daemon->Find("p") != nullptr) daemon->Exit("p", 0, ExitCode(0));
  }
  Pass(3s);
  EXPECT_EQ(State("p"), JobState::kSucceeded);
  EXPECT_EQ(State("j"), JobState::kRunning);
}

// Their own coming and going makes no room: they would wake each other.
TEST_F(RefusalTest, TwoThatAreRefusedDoNotWakeEachOther) {
  b_.refuses = a_.refuses;
  for (const char* name : {"k1", "k2"}) MustSubmit(Wide(name));
  Pass(600s, 1s);
  for (const char* name : {"j", "k1", "k2"}) {
    EXPECT_LT(Get(name).generation, 40u) << name;
  }
}

}  // namespace
}  // namespace lockstep::server
