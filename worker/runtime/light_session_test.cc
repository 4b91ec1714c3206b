// Light sessions over a real link, with the page that a daemon reads.
#include "worker/runtime/light_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/rank_link/testing.h"
#include "worker/runtime/session_test_util.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::runtime {
namespace {

using rank_link::RankKey;
using rank_link::RankLinkServer;
using rank_link::TempDir;
using rank_link::TestDaemon;
using std::chrono::milliseconds;
using std::chrono::seconds;
using task::RankPhase;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class LightSessionTest : public ::testing::Test {
 protected:
  LightSessionTest() { ClearRankEnvironment(); }
  ~LightSessionTest() override { ClearRankEnvironment(); }

  static RankKey Key(int rank) { return {"mnist", 3, rank}; }
  v1::RankWelcome Welcome(int rank) const {
    v1::RankWelcome welcome;
    welcome.set_program(true);
    welcome.set_role("worker");
    welcome.set_task_index(1);
    welcome.set_rank(rank);
    welcome.set_world_size(4);
    welcome.set_local_rank(1);
    welcome.set_local_size(2);
    welcome.set_attempt(2);
    welcome.set_cpus(1.5);
    welcome.add_gpus(5);
    welcome.set_output_directory("/out");
    welcome.set_checkpoint_interval_steps(50);
    welcome.set_checkpoint_keep(7);
    welcome.set_page_path(PagePath());
    return welcome;
  }
  std::string PagePath() const { return dir_.path() + "/page"; }
  void Expect(const v1::RankWelcome& welcome) {
    daemon_.Expect(Key(welcome.rank()), RankNonce(welcome.rank()), welcome);
    SetProgramEnvironment(dir_.path() + "/link-file", daemon_.path(), "mnist",
                          3, welcome.rank());
  }
  static std::unique_ptr<LightSession> Join() {
    auto session = LightSession::Join({});
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  // What a daemon reads now.
  task::RankPage Page() const {
    task::RankPage page;
    std::string error;
    auto reader = task::PageReader::Open(PagePath(), &error);
    EXPECT_NE(reader, nullptr) << error;
    if (reader) {
      EXPECT_EQ(reader->ReadLast(&page, &error), task::PageReader::Result::kOk)
          << error;
    }
    return page;
  }
  // All reports in one.
  v1::RankReport Reported() {
    v1::RankReport all;
    for (const auto& [key, report] : daemon_.reports) all.MergeFrom(report);
    return all;
  }

  // A stop may be done before the save that was ordered before it, so a later
  // report may have a smaller number. A daemon takes the largest.
  uint32_t DirectiveDone() {
    uint32_t done = 0;
    for (const auto& [key, report] : daemon_.reports) {
      done = std::max(done, report.directive_done());
    }
    return done;
  }

  TempDir dir_;
  TestDaemon daemon_{dir_.path() + "/link"};
};

TEST_F(LightSessionTest, ThePageSaysThatTheProcessRuns) {
  Expect(Welcome(1));
  auto session = Join();
  ASSERT_NE(session, nullptr);
  // Once a second.
  const MonoTime deadline = MonotonicNow() + seconds(30);
  while (Page().wait.beat < 2 && MonotonicNow() < deadline) {
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_GE(Page().wait.beat, 2u);
  EXPECT_FALSE(Page().wait.known) << "its collectives are the program's own";
}

// A sanitizer's allocator and its threads do not survive a fork of a process
// with threads: the child hangs or is ended.
extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
}
#define LOCKSTEP_NEEDS_FORK()                             \
  if (&__asan_init != nullptr || &__tsan_init != nullptr) \
  GTEST_SKIP() << "it forks beside threads"

// The exit code of `child`, in a forked process.
int InChild(const std::function<int()>& child) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(LightSessionTest, KnowsItsPlaceInTheJob) {
  Expect(Welcome(2));
  auto session = Join();
  const LightSessionIdentity& identity = session->identity();
  EXPECT_TRUE(identity.managed);
  EXPECT_EQ(identity.job, "mnist");
  EXPECT_EQ(identity.role, "worker");
  EXPECT_EQ(identity.task_index, 1);
  EXPECT_EQ(identity.rank, 2);
  EXPECT_EQ(identity.world_size, 4);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_size, 2);
  EXPECT_EQ(identity.generation, 3u);
  EXPECT_EQ(identity.attempt, 2);
  EXPECT_EQ(identity.cpus, 1.5);
  EXPECT_EQ(identity.gpus, std::vector<int>{5});
  EXPECT_EQ(identity.output_directory, "/out");
  EXPECT_EQ(identity.checkpoint_interval_steps, 50);
  EXPECT_EQ(identity.checkpoint_keep, 7);
}

TEST_F(LightSessionTest, AnEvaluatorHasNoRank) {
  v1::RankWelcome welcome = Welcome(4);
  welcome.set_role("evaluator");
  welcome.set_outside_group(true);
  Expect(welcome);
  auto session = Join();
  EXPECT_EQ(session->identity().rank, -1);
  EXPECT_EQ(session->identity().world_size, 4);
  EXPECT_EQ(Page().progress.rank, 4u);
  EXPECT_THAT(Message(session->ReportCheckpoint(5, "/out/5", 1)),
              HasSubstr("this is evaluator"));
}

TEST_F(LightSessionTest, OutsideLockstepItIsRankZeroOfOne) {
  auto session = Join();
  EXPECT_FALSE(session->identity().managed);
  EXPECT_EQ(session->identity().rank, 0);
  EXPECT_EQ(session->identity().world_size, 1);
  EXPECT_EQ(session->identity().role, "");
  EXPECT_TRUE(session->Enter(RankPhase::kCompute).ok());
  EXPECT_TRUE(session->Step({.samples = 4, .loss = 0.5}).ok());
  EXPECT_TRUE(session->Plan(10, 1, 64).ok());
  EXPECT_TRUE(session->Report("accuracy", 0.5).ok());
  EXPECT_TRUE(session->ReportEvent("hello").ok());
  EXPECT_TRUE(session->ReportArtifact("model", "m.pt").ok());
  EXPECT_TRUE(session->ReportCheckpoint(1, "/c", 1).ok());
  EXPECT_TRUE(session->ReportResumed(1).ok());
  EXPECT_FALSE(*session->CheckpointDue());
  EXPECT_FALSE(*session->ShouldStop());
  EXPECT_TRUE(session->Close().ok());
  EXPECT_EQ(session->ShouldStop().status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(LightSessionTest, StepsAndPhasesAreOnThePage) {
  Expect(Welcome(2));
  auto session = Join();
  EXPECT_EQ(Page().progress.last_committed, -1);
  EXPECT_TRUE(session->Plan(100, 3, 64).ok());
  auto before = session->Enter(RankPhase::kCompute);
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(*before, RankPhase::kOther);
  EXPECT_TRUE(
      session->Step({.samples = 16, .loss = 2.5, .learning_rate = 0.1}).ok());
  EXPECT_EQ(*session->Enter(RankPhase::kEvaluation), RankPhase::kCompute);
  EXPECT_TRUE(session->Report("accuracy", 0.75).ok());
  const task::RankPage page = Page();
  EXPECT_EQ(page.progress.generation, 3u);
  EXPECT_EQ(page.progress.rank, 2u);
  EXPECT_EQ(page.progress.last_committed, 1);
  EXPECT_EQ(page.progress.step, 2u);
  EXPECT_EQ(page.progress.phase, RankPhase::kEvaluation);
  ASSERT_TRUE(page.has_counters);
  EXPECT_EQ(page.counters.samples, 16u);
  EXPECT_EQ(page.counters.last_loss, 2.5);
  EXPECT_EQ(page.counters.last_learning_rate, 0.1);
  EXPECT_EQ(page.counters.total_steps, 100u);
  EXPECT_EQ(page.counters.epoch, 3u);
  EXPECT_EQ(page.counters.global_batch, 64u);
  EXPECT_GT(page.counters.phase_seconds[1], 0);
  EXPECT_THAT(page.counters.values,
              UnorderedElementsAre(Pair("accuracy", 0.75)));
}

TEST_F(LightSessionTest, NumbersOfStepsGoOnFromWhereTheyAre) {
  Expect(Welcome(0));
  auto session = Join();
  EXPECT_TRUE(session->ReportResumed(500).ok());
  EXPECT_EQ(Page().progress.last_committed, 500);
  EXPECT_TRUE(session->Step({}).ok());
  EXPECT_EQ(Page().progress.last_committed, 501);
  EXPECT_TRUE(session->Step({.step = 510, .samples = 8}).ok());
  EXPECT_EQ(Page().counters.steps_committed, 10u);
  // More of the same step: gradients that are accumulated.
  EXPECT_TRUE(session->Step({.step = 510, .samples = 8}).ok());
  EXPECT_EQ(Page().counters.steps_committed, 10u);
  EXPECT_EQ(Page().counters.samples, 16u);
  EXPECT_EQ(session->Step({.step = 509}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(session->ReportResumed(400).ok());
  EXPECT_TRUE(session->Step({.step = 401}).ok());
  EXPECT_EQ(Page().progress.last_committed, 401);
}

TEST_F(LightSessionTest, ALossThatIsNoNumberIsNotShown) {
  Expect(Welcome(0));
  auto session = Join();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(session->Step({.loss = nan}).ok());
  EXPECT_FALSE(Page().counters.has_loss);
  EXPECT_TRUE(session->Step({.loss = 2}).ok());
  EXPECT_TRUE(session->Step({.loss = nan}).ok());
  EXPECT_EQ(Page().counters.last_loss, 2);
  EXPECT_EQ(Page().progress.last_committed, 3);
  EXPECT_TRUE(session->Report("accuracy", nan).ok());
}

TEST_F(LightSessionTest, WrongInputIsRefused) {
  Expect(Welcome(2));
  auto session = Join();
  const auto refused = StatusCode::kInvalidArgument;
  EXPECT_EQ(session->Step({.step = -2}).code(), refused);
  EXPECT_EQ(session->Step({.step = (int64_t{1} << 53) + 1}).code(), refused);
  EXPECT_EQ(session->Step({.samples = ~uint64_t{0}}).code(), refused);
  EXPECT_EQ(session->Plan(~uint64_t{0}, 0, 0).code(), refused);
  EXPECT_EQ(session->Report("", 1).code(), refused);
  EXPECT_EQ(session->Report(std::string(32, 'n'), 1).code(), refused);
  EXPECT_EQ(session->ReportEvent("").code(), refused);
  EXPECT_EQ(session->ReportArtifact("", "/p").code(), refused);
  EXPECT_EQ(session->ReportArtifact("n", "").code(), refused);
  EXPECT_EQ(session->ReportCheckpoint(-1, "/p", 1).code(), refused);
  EXPECT_EQ(session->ReportResumed(-1).code(), refused);
  for (const auto phase : {RankPhase::kStragglerWait, RankPhase::kForming,
                           RankPhase::kFinished, static_cast<RankPhase>(77)}) {
    EXPECT_EQ(session->Enter(phase).status().code(), refused);
  }
  EXPECT_EQ(session->ReportCheckpoint(5, "/out/5", 1).code(),
            StatusCode::kFailedPrecondition);
  for (size_t i = 0; i < task::kMaxReportedValues; ++i) {
    EXPECT_TRUE(session->Report("v" + std::to_string(i), 1).ok());
  }
  EXPECT_EQ(session->Report("one more", 1).code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(session->Report("v3", 2).ok());
}

TEST_F(LightSessionTest, ReportsReachTheDaemonBeforeCloseReturns) {
  Expect(Welcome(0));
  auto session = Join();
  EXPECT_TRUE(session->ReportEvent("the data is here").ok());
  EXPECT_TRUE(session->ReportArtifact("model", "/out/model.pt").ok());
  EXPECT_TRUE(session->ReportCheckpoint(50, "/out/50", 1000).ok());
  EXPECT_TRUE(session->ReportResumed(40).ok());
  EXPECT_TRUE(session->Close().ok());
  EXPECT_EQ(Page().progress.phase, RankPhase::kFinished);
  ASSERT_TRUE(daemon_.WaitFor([this] { return daemon_.disconnects == 1; }));
  daemon_.With([this](RankLinkServer*) {
    const v1::RankReport all = Reported();
    EXPECT_EQ(all.event(), "the data is here");
    EXPECT_EQ(all.artifact_name(), "model");
    EXPECT_EQ(all.artifact_path(), "/out/model.pt");
    EXPECT_EQ(all.checkpoint_step(), 50);
    EXPECT_EQ(all.checkpoint_path(), "/out/50");
    EXPECT_EQ(all.checkpoint_bytes(), 1000);
    EXPECT_TRUE(all.has_resumed_step());
    EXPECT_EQ(all.resumed_step(), 40);
    EXPECT_TRUE(daemon_.joined.empty());
  });
  EXPECT_EQ(session->Step({}).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(LightSessionTest, OneProcessJoinsOnceAtATime) {
  Expect(Welcome(0));
  auto session = Join();
  EXPECT_EQ(LightSession::Join({}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(session->Close().ok());
  session.reset();
  EXPECT_NE(Join(), nullptr);
}

TEST_F(LightSessionTest, ASecondProcessOfARankIsRefusedWhileTheFirstLives) {
  LOCKSTEP_NEEDS_FORK();
  Expect(Welcome(0));
  auto session = Join();
  const auto join = [] {
    return static_cast<int>(LightSession::Join({}).status().code());
  };
  EXPECT_EQ(InChild(join), static_cast<int>(StatusCode::kAlreadyExists));
  EXPECT_TRUE(session->Step({}).ok());
  EXPECT_EQ(Page().progress.last_committed, 1);
  EXPECT_TRUE(session->Close().ok());
  EXPECT_EQ(InChild(join), 0);
}

// A child that it forked may have its socket open.
TEST_F(LightSessionTest, AnotherMayJoinAfterTheFirstWasKilled) {
  LOCKSTEP_NEEDS_FORK();
  Expect(Welcome(0));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t first = ::fork();
  if (first == 0) {
    auto session = LightSession::Join({});
    pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    if (!session.ok()) child = -1;
    (void)!::write(ready[1], &child, sizeof(child));
    for (;;) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ready[0], &child, sizeof(child)),
            static_cast<ssize_t>(sizeof(child)));
  ASSERT_GT(child, 0);
  EXPECT_EQ(LightSession::Join({}).status().code(), StatusCode::kAlreadyExists);
  ::kill(first, SIGKILL);
  ASSERT_EQ(::waitpid(first, nullptr, 0), first);
  EXPECT_NE(Join(), nullptr);
  ::kill(child, SIGKILL);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(LightSessionTest, AForkedChildMayNotUseIt) {
  LOCKSTEP_NEEDS_FORK();
  Expect(Welcome(0));
  auto session = Join();
  const int failed = InChild([&] {
    const std::vector<StatusCode> codes = {
        session->Step({}).code(),
        session->Enter(RankPhase::kInput).status().code(),
        session->Plan(1, 1, 1).code(),
        session->Report("a", 1).code(),
        session->ReportEvent("e").code(),
        session->ReportArtifact("a", "/a").code(),
        session->ReportCheckpoint(1, "/c", 1).code(),
        session->ReportResumed(1).code(),
        session->CheckpointDue().status().code(),
        session->ShouldStop().status().code(),
        session->Close().code()};
    session.reset();
    int other = 0;
    for (const StatusCode code : codes) {
      if (code != StatusCode::kFailedPrecondition) ++other;
    }
    return other;
  });
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(session->Step({}).ok());
  EXPECT_EQ(Page().progress.last_committed, 1);
}

TEST_F(LightSessionTest, ANewDaemonGetsWhatTheOldOneMayHaveLost) {
  Expect(Welcome(0));
  auto session = Join();
  EXPECT_TRUE(session->ReportCheckpoint(50, "/out/50", 1000).ok());
  ASSERT_TRUE(daemon_.WaitFor([this] { return !daemon_.reports.empty(); }));
  daemon_.Stop();
  daemon_.reports.clear();
  EXPECT_TRUE(session->Step({}).ok());
  EXPECT_TRUE(session->ReportArtifact("model", "/m").ok());
  daemon_.Start();
  ASSERT_TRUE(daemon_.WaitFor([this] {
    const v1::RankReport all = Reported();
    return all.checkpoint_step() == 50 && all.artifact_name() == "model";
  }));
}

// It takes five seconds.
TEST_F(LightSessionTest, AnOrderThatTheProgramDoesNotAskForIsGivenUp) {
  Expect(Welcome(0));
  auto session = Join();
  ASSERT_NE(session, nullptr);
  daemon_.With([&](RankLinkServer* server) {
    server->SendDirective(Key(0), 6, v1::RankDirective::STOP);
  });
  ASSERT_TRUE(daemon_.WaitFor([this] {
    return std::any_of(daemon_.reports.begin(), daemon_.reports.end(),
                       [](const auto& report) {
                         return report.second.event().find("does not ask") !=
                                std::string::npos;
                       });
  }));
}

TEST_F(LightSessionTest, ChangesNoSignalHandler) {
  ASSERT_NE(::signal(SIGPIPE, SIG_DFL), SIG_ERR);
  Expect(Welcome(0));
  auto session = Join();
  daemon_.Stop();
  EXPECT_TRUE(session->ReportEvent("no daemon listens").ok());
  struct sigaction now {};
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
  const MonoTime begin = MonotonicNow();
  EXPECT_EQ(session->Close().code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(MonotonicNow() - begin, seconds(20));
}

TEST_F(LightSessionTest, SaysWhyItCannotJoin) {
  ::setenv(rank_link::kJobVariable, "mnist", 1);
  EXPECT_THAT(Message(LightSession::Join({}).status()),
              HasSubstr("too old for programs to join"));
  ::setenv(rank_link::kLinkVariable, "/run/link.sock", 1);
  EXPECT_THAT(Message(LightSession::Join({}).status()),
              HasSubstr("native job"));
  ClearRankEnvironment();
  v1::RankWelcome old = Welcome(0);
  old.set_program(false);
  Expect(old);
  EXPECT_THAT(Message(LightSession::Join({}).status()),
              HasSubstr("upgrade lockstep-worker"));
  SetProgramEnvironment(dir_.path() + "/link-file", daemon_.path(), "mnist", 9,
                        0);
  const Status refused = LightSession::Join({}).status();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  SetProgramEnvironment(dir_.path() + "/link-file", dir_.path() + "/none",
                        "mnist", 3, 0);
  EXPECT_EQ(
      LightSession::Join({.join_timeout = milliseconds(50)}).status().code(),
      StatusCode::kDeadlineExceeded);
  ::setenv(rank_link::kLinkFileVariable, "/nowhere", 1);
  EXPECT_THAT(Message(LightSession::Join({}).status()),
              HasSubstr("LOCKSTEP_LINK_FILE"));
}

// A rank of one needs no answers. light_orders_test.cc has several ranks.
TEST_F(LightSessionTest, ObeysDirectivesAfterTheNextStep) {
  v1::RankWelcome welcome = Welcome(0);
  welcome.set_world_size(1);
  Expect(welcome);
  // They wait for it.
  daemon_.With([](RankLinkServer* server) {
    server->SendDirective(Key(0), 1, v1::RankDirective::CHECKPOINT);
    server->SendDirective(Key(0), 2, v1::RankDirective::STOP);
  });
  auto session = Join();
  int due = 0;
  bool stop = false;
  for (int step = 1; step <= 1000 && !stop; ++step) {
    EXPECT_TRUE(session->Step({.step = step}).ok());
    if (*session->CheckpointDue()) {
      ++due;
      EXPECT_TRUE(session->ReportCheckpoint(step, "/out/c", 1).ok());
    }
    stop = *session->ShouldStop();
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_TRUE(stop);
  EXPECT_GE(due, 1);
  EXPECT_TRUE(*session->ShouldStop());
  EXPECT_FALSE(*session->CheckpointDue());
  ASSERT_TRUE(daemon_.WaitFor([this] { return DirectiveDone() == 2u; }));
}

TEST_F(LightSessionTest, ManyThreadsMayStep) {
  Expect(Welcome(0));
  auto session = Join();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        EXPECT_TRUE(session->Enter(RankPhase::kCompute).ok());
        EXPECT_TRUE(session->Step({.samples = 1}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Page().progress.last_committed, 2000);
  EXPECT_EQ(Page().counters.samples, 2000u);
}

}  // namespace
}  // namespace lockstep::worker::runtime
