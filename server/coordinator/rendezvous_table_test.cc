#include <gmock/gmock.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// ---- Rendezvous ----

TEST_F(CoordinatorTest, RendezvousAnswersNowOrLater) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  const auto put = [&](FakeDaemon& from, const char* key, const char* value) {
    return coordinator_->sessions()->OnRendezvousPut(from.session(), "j", 1,
                                                     key, value);
  };
  const auto get = [&](FakeDaemon& from, const char* key) {
    return coordinator_->sessions()->OnRendezvousGet(from.session(), "j", 1,
                                                     key);
  };
  ASSERT_TRUE(get(b_, "x").ok());
  Run();
  EXPECT_THAT(b_.rendezvous, IsEmpty());
  ASSERT_TRUE(put(a_, "x", "1").ok());
  ASSERT_TRUE(put(a_, "x", "other").ok());
  ASSERT_TRUE(get(a_, "x").ok());
  Run();
  EXPECT_THAT(b_.rendezvous, ElementsAre("j g1 x=1"));
  EXPECT_THAT(a_.rendezvous, ElementsAre("j g1 x=1"));
}

TEST_F(CoordinatorTest, RendezvousIsOfOneGenerationAndItsNodes) {
  FakeDaemon c("c", {2, 0, 0, ""});
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  Connect(&c);
  EXPECT_EQ(coordinator_->sessions()
                ->OnRendezvousPut(c.session(), "j", 1, "x", "evil")
                .code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(coordinator_->sessions()
                ->OnRendezvousGet(c.session(), "j", 1, "x")
                .code(),
            StatusCode::kPermissionDenied);
  // Of other generations and jobs: late, and nothing happens.
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousPut(a_.session(), "j", 2, "x", "1")
                  .ok());
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousGet(a_.session(), "ghost", 1, "x")
                  .ok());
  ASSERT_TRUE(coordinator_->sessions()
                  ->OnRendezvousPut(a_.session(), "j", 1, "x", "old")
                  .ok());
  b_.Exit("j", 1, ExitCode(1));
  Run();
  ASSERT_EQ(Get("j").generation, 2u);
  ASSERT_TRUE(coordinator_->sessions()
                  ->OnRendezvousGet(a_.session(), "j", 2, "x")
                  .ok());
  Run();
  EXPECT_THAT(a_.rendezvous, IsEmpty()) << "a generation begins without values";
  c.Disconnect();
}

TEST_F(CoordinatorTest, RendezvousIsBounded) {
  options_.limits.rendezvous.of_generation = 10'000;
  options_.limits.rendezvous.of_all = 15'000;
  Restart();
  Connect(&a_);
  const auto fill = [&](const JobName& job) {
    const std::string value(1000, 'x');
    Status status;
    int kept = 0;
    for (; kept < 100; ++kept) {
      status = coordinator_->sessions()->OnRendezvousPut(
          a_.session(), job, 1, std::to_string(kept), value);
      if (!status.ok()) break;
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    return kept;
  };
  for (const char* name : {"i", "j"}) {
    JobSpec spec = NativeSpec(name, 1);
    spec.output_directory.clear();
    spec.roles.Edit()[0].resources.cpus = 1;
    MustSubmit(spec);
  }
  Run();
  ASSERT_THAT(NodesOf(Get("i")), ElementsAre("a"));
  ASSERT_THAT(NodesOf(Get("j")), ElementsAre("a"));
  EXPECT_EQ(fill("i"), 8) << "of one generation";
  EXPECT_EQ(fill("j"), 5) << "of all";
  // Who waits takes room as well.
  EXPECT_EQ(coordinator_->sessions()
                ->OnRendezvousGet(a_.session(), "i", 1, std::string(2000, 'k'))
                .code(),
            StatusCode::kResourceExhausted);
  ASSERT_TRUE(Cancel("i").ok());
  Run();
  ASSERT_EQ(State("i"), JobState::kCancelled);
  // Who has waited takes none: 28 answered keys would not fit with it.
  for (int i = 0; i < 28; ++i) {
    const std::string key = fmt::format("late {}", i);
    ASSERT_TRUE(coordinator_->sessions()
                    ->OnRendezvousGet(a_.session(), "j", 1, key)
                    .ok());
    ASSERT_TRUE(coordinator_->sessions()
                    ->OnRendezvousPut(a_.session(), "j", 1, key, "")
                    .ok());
  }
  EXPECT_TRUE(coordinator_->sessions()
                  ->OnRendezvousPut(a_.session(), "j", 1, "more", "x")
                  .ok())
      << "an ended job's room is free again";
}

// ---- Logs ----

TEST_F(CoordinatorTest, LogsAreTakenFromWhoRanThem) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  const std::string uid = Get("j").uid;
  const auto check = [&](FakeDaemon& from, Generation generation,
                         int32_t rank) {
    return coordinator_->sessions()
        ->CheckLog(from.session(), "j", uid, generation, rank)
        .code();
  };
  EXPECT_EQ(check(a_, 1, 0), StatusCode::kOk);
  EXPECT_EQ(check(b_, 1, 0), StatusCode::kPermissionDenied);
  EXPECT_EQ(check(b_, 1, 1), StatusCode::kOk);
  EXPECT_EQ(check(b_, 1, 7), StatusCode::kPermissionDenied);
  EXPECT_EQ(check(b_, 9, 1), StatusCode::kNotFound);
  EXPECT_EQ(coordinator_->sessions()
                ->CheckLog(a_.session(), "j", "other", 1, 0)
                .code(),
            StatusCode::kNotFound);
  b_.Exit("j", 1, ExitCode(1));
  Run();
  ASSERT_EQ(Get("j").generation, 2u);
  EXPECT_EQ(check(a_, 1, 0), StatusCode::kOk) << "of the attempt before";
  EXPECT_EQ(check(b_, 1, 0), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace lockstep::server
