// Sessions over a real link and, for two ranks, the real backend.
#include "worker/runtime/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/testing.h"
#include "worker/rank_link/testing.h"
#include "worker/runtime/peer_lost.h"
#include "worker/runtime/session_test_util.h"
#include "worker/runtime/testing.h"

namespace lockstep::worker::runtime {
namespace {

using rank_link::In;
using rank_link::RankKey;
using rank_link::RankLinkServer;
using rank_link::TempDir;
using rank_link::TestDaemon;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kJob[] = "mnist";
constexpr uint64_t kGeneration = 3;

RankKey Key(int rank) { return {kJob, kGeneration, rank}; }

v1::RankWelcome Welcome(const std::string& dir, int rank, int world_size) {
  v1::RankWelcome welcome;
  welcome.set_rank(rank);
  welcome.set_world_size(world_size);
  welcome.set_local_rank(rank);
  welcome.set_local_size(world_size);
  welcome.set_generation(kGeneration);
  welcome.set_job(kJob);
  welcome.set_job_key(std::string(32, 'k'));
  welcome.set_spec_hash(std::string(32, 's'));
  welcome.set_bind_address("127.0.0.1");
  welcome.set_output_directory("/out");
  welcome.set_checkpoint_interval_steps(50);
  welcome.set_page_path(dir + "/page-" + std::to_string(rank));
  welcome.set_attempt(2);
  for (uint64_t g = 1; g <= kGeneration; ++g) {
    v1::RankLineage* entry = welcome.add_lineage();
    entry->set_generation(g);
    entry->set_start_step(static_cast<int64_t>(g) * 10);
  }
  return welcome;
}

const std::vector<Parameter> kSessionParameters = {{"w", 5000}, {"b", 10}};

// The step whose checkpoint rank 1 cannot write.
std::atomic<int64_t> refused_checkpoint = 0;

// Steps until told to stop; what a training program does.
Status Train(Session* session, int64_t steps, int64_t* stopped_at) {
  LOCKSTEP_RETURN_IF_ERROR(session->Form({{"model", "cnn"}}));
  ReducerOptions options;
  options.bucket_bytes = 8192;
  options.state_hash_interval = 10;
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Reducer> reducer,
                            session->MakeReducer(kSessionParameters, options));
  uint64_t position = 0;
  while (reducer->committed() < steps) {
    session->Enter(Phase::kCompute);
    for (size_t i = 0; i < reducer->parameters(); ++i) {
      for (float& g : reducer->gradient(i)) {
        g = static_cast<float>(session->rank() + 1);
      }
      LOCKSTEP_RETURN_IF_ERROR(reducer->Ready(i));
    }
    StepInputs inputs;
    inputs.samples = 64;
    inputs.loss_sum = 64;
    inputs.position = position += 128;
    if (reducer->wants_state_hash()) inputs.state_hash = position;
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, reducer->Finish(inputs));
    const int n = session->world_size();
    EXPECT_THAT(reducer->gradient(0),
                Each(static_cast<float>(n * (n + 1) / 2)));
    EXPECT_TRUE(result.apply);
    session->Enter(Phase::kOptimizer);
    LOCKSTEP_ASSIGN_OR_RETURN(const StepOrders orders, reducer->Commit());
    if (orders.checkpoint) {
      const bool durable =
          session->rank() != 1 || orders.checkpoint->step != refused_checkpoint;
      LOCKSTEP_RETURN_IF_ERROR(reducer->Vote(orders.checkpoint->id, durable));
    }
    if (orders.settled && orders.settled->complete && session->chief()) {
      session->ReportCheckpoint(orders.settled->order, "/out/step", 1000);
    }
    if (orders.stop) break;
  }
  *stopped_at = reducer->committed();
  do {
    LOCKSTEP_ASSIGN_OR_RETURN(const StepOrders orders, reducer->Settle());
    if (orders.settled && orders.settled->complete && session->chief()) {
      session->ReportCheckpoint(orders.settled->order, "/out/step", 1000);
    }
  } while (reducer->in_flight());
  return OkStatus();
}

TEST(SessionAloneTest, AProgramOutsideLockstepIsRankZeroOfOne) {
  ClearRankEnvironment();
  auto session = Session::Join(
      {.local_output_directory = "/tmp/here", .local_checkpoint_interval = 7});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->identity().local);
  EXPECT_TRUE((*session)->chief());
  EXPECT_EQ((*session)->world_size(), 1);
  EXPECT_EQ((*session)->identity().output_directory, "/tmp/here");
  EXPECT_EQ((*session)->identity().checkpoint_interval_steps, 7);
  int64_t stopped_at = 0;
  const Status status = Train(session->get(), 20, &stopped_at);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stopped_at, 20);
  std::vector<double> values = {1.5};
  EXPECT_TRUE((*session)->AllReduceSum(values).ok());
  EXPECT_EQ(values[0], 1.5);
  EXPECT_EQ((*session)->Leave(status), 0);
}

TEST(SessionAloneTest, CollectivesBeforeFormAreRefused) {
  ClearRankEnvironment();
  auto session = *Session::Join({});
  std::vector<double> values = {1};
  std::string bytes;
  EXPECT_EQ(session->AllReduceSum(values).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(session->Broadcast(&bytes).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(session->Barrier().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(session->MakeReducer(kSessionParameters, {}).ok());
}

TEST(SessionAloneTest, SigpipeIsIgnored) {
  ClearRankEnvironment();
  ::signal(SIGPIPE, SIG_DFL);
  auto session = *Session::Join({});
  struct sigaction action;
  ::sigaction(SIGPIPE, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_IGN);
}

TEST(SessionAloneTest, NobodyAtTheLinkIsToldInTime) {
  SetRankEnvironment("/tmp/lockstep-no-such-link", kJob, kGeneration, 0);
  auto session = Session::Join({.join_timeout = milliseconds(50)});
  EXPECT_EQ(session.status().code(), StatusCode::kDeadlineExceeded);
  ClearRankEnvironment();
}

TEST(SessionTest, ExitCodesDistinguishVictims) {
  EXPECT_EQ(Session::ExitCodeFor(OkStatus()), 0);
  EXPECT_EQ(Session::ExitCodeFor(Internal("mine")), kExitFailed);
  EXPECT_EQ(Session::ExitCodeFor(Unavailable("disk")), kExitFailed);
  EXPECT_EQ(Session::ExitCodeFor(MarkPeerLost(Unavailable("rank 1"))),
            kExitPeerLost);
  EXPECT_EQ(Session::ExitCodeFor(MarkPeerLost(InvalidArgument("mine"))),
            kExitFailed);
}

class TwoRanks : public ::testing::Test {
 protected:
  TwoRanks() {
    for (int r = 0; r < 2; ++r) {
      daemon_.Expect(Key(r), RankNonce(r), Welcome(dir_.path(), r, 2));
    }
  }
  ~TwoRanks() override { ClearRankEnvironment(); }
  // One after the other: the environment is the process's.
  void Join() {
    for (int r = 0; r < 2; ++r) {
      SetRankEnvironment(daemon_.path(), kJob, kGeneration, r);
      auto session = Session::Join({.operation_timeout = seconds(20)});
      ASSERT_TRUE(session.ok()) << session.status();
      sessions_.push_back(*std::move(session));
    }
  }
  // Of `count` reports that tell of one; other events may come before.
  std::vector<v1::RankReport> WaitForFailures(size_t count) {
    std::vector<v1::RankReport> failures;
    EXPECT_TRUE(daemon_.WaitFor([&] {
      failures.clear();
      for (const auto& [key, report] : daemon_.reports) {
        if (!report.failure().empty()) failures.push_back(report);
      }
      return failures.size() >= count;
    }));
    return failures;
  }
  // The last report that has `field`, from rank 0.
  task::RankPage Page(int rank) {
    std::string error;
    auto reader = task::PageReader::Open(
        dir_.path() + "/page-" + std::to_string(rank), &error);
    EXPECT_TRUE(reader) << error;
    task::RankPage page;
    if (reader) reader->ReadLast(&page, &error);
    return page;
  }

  TempDir dir_;
  TestDaemon daemon_{dir_.path() + "/link"};
  std::vector<std::unique_ptr<Session>> sessions_;
};

TEST_F(TwoRanks, JoinTellsWhoTheRankIs) {
  Join();
  ASSERT_EQ(sessions_.size(), 2u);
  const Session& session = *sessions_[1];
  EXPECT_FALSE(session.identity().local);
  EXPECT_EQ(session.identity().job, kJob);
  EXPECT_EQ(session.identity().generation, kGeneration);
  EXPECT_EQ(session.rank(), 1);
  EXPECT_EQ(session.world_size(), 2);
  EXPECT_EQ(session.identity().local_rank, 1);
  EXPECT_EQ(session.identity().attempt, 2);
  EXPECT_EQ(session.identity().output_directory, "/out");
  EXPECT_EQ(session.identity().checkpoint_keep, 3);
  ASSERT_EQ(session.identity().lineage.size(), 3u);
  EXPECT_EQ(session.identity().lineage[2].start_step, 30);
}

TEST_F(TwoRanks, TrainAHundredStepsAndSettle) {
  Join();
  RunRanks(2, [&](int r) {
    Session* session = sessions_[r].get();
    int64_t stopped_at = 0;
    const Status status = Train(session, 100, &stopped_at);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(stopped_at, 100);
    session->Report("accuracy", 0.5);
    if (r == 0) session->ReportArtifact("model", "/out/model");
    EXPECT_EQ(session->Leave(status), 0);
  });
  for (int r = 0; r < 2; ++r) {
    const task::RankPage page = Page(r);
    EXPECT_EQ(page.progress.last_committed, 100);
    EXPECT_EQ(page.progress.phase, task::RankPhase::kFinished);
    EXPECT_EQ(page.counters.steps_committed, 100u);
    EXPECT_EQ(page.counters.samples, 6400u);
    ASSERT_EQ(page.counters.values.size(), 1u);
    EXPECT_EQ(page.counters.values[0].first, "accuracy");
  }
  // The artifact is told last; other events may come before.
  std::vector<int64_t> published;
  EXPECT_TRUE(daemon_.WaitFor([&] {
    published.clear();
    bool told = false;
    for (const auto& [key, report] : daemon_.reports) {
      if (!report.checkpoint_path().empty()) {
        published.push_back(report.checkpoint_step());
      }
      told = told || report.artifact_path() == "/out/model";
    }
    return told;
  }));
  EXPECT_EQ(published, (std::vector<int64_t>{50, 100}));
}

TEST_F(TwoRanks, ThePageSaysForWhomARankWaits) {
  Join();
  std::atomic<bool> said = false;
  RunRanks(2, [&](int r) {
    Session* session = sessions_[r].get();
    ASSERT_EQ(session->Form({{"model", "cnn"}}), OkStatus());
    if (r == 1) {
      // The link's thread writes it once a second.
      said = collective::AwaitTrue([&] {
        const task::RankWait wait = Page(0).wait;
        return wait.waiting && wait.peer == 1 && wait.waits > 0;
      });
    }
    EXPECT_EQ(session->Barrier(), OkStatus());
    session->Leave(OkStatus());
  });
  EXPECT_TRUE(said);
}

TEST_F(TwoRanks, PhasesOfThePageAddUpToWallTime) {
  Join();
  RunRanks(2, [&](int r) {
    int64_t stopped_at = 0;
    const Status status = Train(sessions_[r].get(), 10, &stopped_at);
    EXPECT_TRUE(status.ok()) << status;
    sessions_[r]->Leave(status);
  });
  const task::RankPage page = Page(0);
  double sum = 0;
  for (const double phase : page.counters.phase_seconds) sum += phase;
  const double wall = static_cast<double>(page.progress.mono_nanos -
                                          page.counters.start_mono_nanos) *
                      1e-9;
  EXPECT_NEAR(sum, wall, 0.005 * wall + 1e-4);
}

TEST_F(TwoRanks, ADirectiveStopsBothAtTheSameStep) {
  Join();
  daemon_.With([&](RankLinkServer* server) {
    server->SendDirective(Key(0), 6, v1::RankDirective::CHECKPOINT);
  });
  int64_t stopped_at[2] = {0, 0};
  RunRanks(2, [&](int r) {
    if (r == 0) {
      // Said while the ranks run; how far they are does not matter.
      std::thread daemon([&] {
        daemon_.WaitFor([&] {
          for (const auto& [key, report] : daemon_.reports) {
            if (report.directive_done() == 6) return true;
          }
          return false;
        });
        daemon_.With([&](RankLinkServer* server) {
          server->SendDirective(Key(0), 7, v1::RankDirective::STOP);
        });
      });
      const Status status =
          Train(sessions_[r].get(), 1'000'000, &stopped_at[r]);
      daemon.join();
      EXPECT_EQ(sessions_[r]->Leave(status), 0) << status;
    } else {
      const Status status =
          Train(sessions_[r].get(), 1'000'000, &stopped_at[r]);
      EXPECT_EQ(sessions_[r]->Leave(status), 0) << status;
    }
  });
  EXPECT_GT(stopped_at[0], 0);
  EXPECT_LT(stopped_at[0], 1'000'000);
  EXPECT_EQ(stopped_at[0], stopped_at[1]);
}

TEST_F(TwoRanks, ALastCheckpointThatWasNotSavedIsNoSuccess) {
  Join();
  refused_checkpoint = 100;
  RunRanks(2, [&](int r) {
    int64_t stopped_at = 0;
    const Status status = Train(sessions_[r].get(), 100, &stopped_at);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(sessions_[r]->Leave(status), r == 0 ? kExitFailed : 0);
  });
  refused_checkpoint = 0;
  const std::vector<v1::RankReport> failures = WaitForFailures(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].failure_reason(), 91);
  EXPECT_FALSE(failures[0].victim());
  EXPECT_THAT(failures[0].failure(),
              HasSubstr("checkpoint, of step 100, was not saved"));
  EXPECT_THAT(failures[0].failure(), HasSubstr("newest one is of step 50"));
}

TEST_F(TwoRanks, AnEarlierCheckpointThatWasNotSavedIsOnlyAnEvent) {
  Join();
  refused_checkpoint = 50;
  RunRanks(2, [&](int r) {
    int64_t stopped_at = 0;
    const Status status = Train(sessions_[r].get(), 100, &stopped_at);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(sessions_[r]->Leave(status), 0);
  });
  refused_checkpoint = 0;
}

TEST_F(TwoRanks, AbortEndsBothAsVictims) {
  Join();
  RunRanks(3, [&](int r) {
    if (r == 2) {
      EXPECT_TRUE(daemon_.WaitFor([&] { return daemon_.joined.size() == 2; }));
      daemon_.With([&](RankLinkServer* server) {
        server->SendAbort(Key(0), "node b is lost");
        server->SendAbort(Key(1), "node b is lost");
      });
      return;
    }
    int64_t stopped_at = 0;
    const Status status = Train(sessions_[r].get(), 1'000'000'000, &stopped_at);
    EXPECT_TRUE(Session::IsVictim(status)) << status;
    EXPECT_EQ(sessions_[r]->Leave(status), kExitPeerLost);
  });
  const std::vector<v1::RankReport> failures = WaitForFailures(2);
  ASSERT_EQ(failures.size(), 2u);
  for (const v1::RankReport& report : failures) {
    EXPECT_TRUE(report.victim()) << report.failure();
    EXPECT_EQ(report.lost_peers_size(), 0) << report.failure();
  }
}

TEST_F(TwoRanks, OtherConfigIsNamedBeforeTheFirstStep) {
  Join();
  RunRanks(2, [&](int r) {
    const Status status = sessions_[r]->Form(
        {{"model", "cnn"}, {"batch", std::to_string(64 + r)}});
    EXPECT_EQ(ReasonOf(status), "CONFIG_MISMATCH") << status;
    EXPECT_THAT(Message(status), HasSubstr("batch"));
    EXPECT_EQ(sessions_[r]->Leave(status), kExitFailed);
  });
  const std::vector<v1::RankReport> failures = WaitForFailures(2);
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].failure_reason(), 53);
  EXPECT_FALSE(failures[0].victim());
  daemon_.With([&](RankLinkServer*) { EXPECT_TRUE(daemon_.joined.empty()); });
}

TEST_F(TwoRanks, SmallCollectivesBesideTheSteps) {
  Join();
  RunRanks(2, [&](int r) {
    Session* session = sessions_[r].get();
    ASSERT_TRUE(session->Form({}).ok());
    std::vector<double> values(20000, r + 1.0 / 3);
    ASSERT_TRUE(session->AllReduceSum(values).ok());
    EXPECT_THAT(values, Each(1 + 2.0 / 3));
    std::string bytes = r == 0 ? std::string(200'000, 'x') : "other";
    ASSERT_TRUE(session->Broadcast(&bytes).ok());
    EXPECT_EQ(bytes, std::string(200'000, 'x'));
    bytes = r == 0 ? "" : "other";
    ASSERT_TRUE(session->Broadcast(&bytes).ok());
    EXPECT_EQ(bytes, "");
    EXPECT_TRUE(session->Barrier().ok());
    EXPECT_EQ(session->Leave(OkStatus()), 0);
  });
}

// Real processes: rank 1 is killed, and where `told` the daemon tells rank 0.
// What rank 0 said last.
v1::RankReport ExitMessageOfASurvivor(bool told) {
  TempDir dir;
  const std::string link = dir.path() + "/link";
  collective::RankProcesses ranks(2, [&](int r) {
    SetRankEnvironment(link, kJob, kGeneration, r);
    auto session = Session::Join({});
    if (!session.ok()) return 99;
    int64_t stopped_at = 0;
    return (*session)->Leave(Train(session->get(), 1'000'000'000, &stopped_at));
  });
  // The ranks run already: a Hello before Expect would be refused.
  TestDaemon daemon(link, nullptr);
  for (int r = 0; r < 2; ++r) {
    daemon.Expect(Key(r), RankNonce(r), Welcome(dir.path(), r, 2));
  }
  daemon.Start();
  EXPECT_TRUE(daemon.WaitFor([&] { return daemon.joined.size() == 2; }))
      << "exit codes " << ranks.Join(0, In(seconds(0))) << ", "
      << ranks.Join(1, In(seconds(0)));
  ranks.Signal(1, SIGKILL);
  if (told) {
    EXPECT_TRUE(daemon.WaitFor([&] { return daemon.disconnects >= 1; }));
    daemon.With([&](RankLinkServer* server) {
      server->SendAbort(Key(0), "rank 1 was killed");
    });
  }
  EXPECT_EQ(ranks.Join(0, In(seconds(10))), kExitPeerLost);
  v1::RankReport last;
  EXPECT_TRUE(daemon.WaitFor([&] {
    for (const auto& [key, report] : daemon.reports) {
      if (report.failure().empty()) continue;  // Another event.
      last = report;
      return true;
    }
    return false;
  }));
  return last;
}

TEST(SessionProcessTest, ASurvivorLeavesAsVictim) {
  EXPECT_TRUE(ExitMessageOfASurvivor(true).victim());
}

TEST(SessionProcessTest, ASurvivorNamesThePeerThatItLost) {
  const v1::RankReport report = ExitMessageOfASurvivor(false);
  EXPECT_TRUE(report.victim());
  EXPECT_THAT(report.lost_peers(), ElementsAre(1)) << report.failure();
}

}  // namespace
}  // namespace lockstep::worker::runtime
