#include "common/rpc/work_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/rpc/call_pools.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;

// Holds a thread until it is opened.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  bool Pass() {
    MutexLock lock(&mu_);
    const MonoTime deadline = MonotonicNow() + 60s;
    while (!open_) {
      if (!changed_.WaitUntil(&mu_, deadline)) return false;
    }
    return true;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(WorkPoolTest, CallersTakeTurns) {
  std::vector<std::string> order;
  {
    WorkPool pool(1);
    Gate gate, begun;
    pool.Post("ann", [&] {
      begun.Open();
      gate.Pass();
    });
    ASSERT_TRUE(begun.Pass());
    for (int i = 0; i < 3; ++i) {
      pool.Post("ann", [&] { order.push_back("ann"); });
    }
    pool.Post("bob", [&] { order.push_back("bob"); });
    EXPECT_EQ(pool.waiting(), 4u);
    gate.Open();
  }
  EXPECT_THAT(order, ElementsAre("ann", "bob", "ann", "ann"));
}

TEST(WorkPoolTest, WorkOfOneCallerRunsAtOnceUpToTheBound) {
  WorkPool pool(2);
  Gate first, second, third;
  pool.Post("ann", [&] {
    first.Open();
    EXPECT_TRUE(second.Pass()) << "runs beside this";
  });
  ASSERT_TRUE(first.Pass());
  pool.Post("ann", [&] {
    second.Open();
    third.Pass();
  });
  ASSERT_TRUE(second.Pass());
  third.Open();
}

TEST(CallPoolsTest, OneRoleThatIsStuckLeavesTheOthersAlone) {
  CallPoolOptions options;
  options.unary_threads = {1, 1, 1};
  options.most_waiting = 3;
  const pki::Identity viewer =
      UserIdentity("test", pki::UserRole::kViewer, "viv");
  const pki::Identity admin =
      UserIdentity("test", pki::UserRole::kAdmin, "ann");
  Gate stuck, begun, admitted;
  CallPools pools(options);
  WorkPool* const users = pools.unary(CallRoleOf(viewer));
  users->Post("viv", [&] {
    begun.Open();
    stuck.Pass();
  });
  ASSERT_TRUE(begun.Pass());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(pools.CheckRoom(viewer).ok()) << i;
    users->Post("viv", [] {});
  }
  EXPECT_EQ(ReasonOf(pools.CheckRoom(viewer)), "BUSY");
  EXPECT_TRUE(pools.CheckRoom(admin).ok());
  pools.unary(CallRoleOf(admin))->Post("ann", [&] { admitted.Open(); });
  EXPECT_TRUE(admitted.Pass());
  EXPECT_EQ(CallRoleOf(pki::WorkerIdentity("test", "a")), CallRole::kWorkers);
  stuck.Open();
}

}  // namespace
}  // namespace lockstep
