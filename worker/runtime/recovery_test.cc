// Recoveries of whole sessions.
#include "worker/runtime/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/runtime/recovery_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RecoveryTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, RecoveryTest,
                         ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(RecoveryTest, WithoutADeathNothingIsDifferent) {
  Job job(GetParam(), 3, 6);
  ExpectUndisturbed(job, job.Run(), 6);
  EXPECT_TRUE(job.Events().empty());
}

TEST_P(RecoveryTest, ARankThatDiesInAReductionIsReplaced) {
  Job job(GetParam(), 3, 11);
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 5, .point = Point::kHalfReduced}});
  ExpectUndisturbed(job, ranks, 11);
  EXPECT_EQ(ranks[0].recoveries, 1);
  EXPECT_FALSE(ranks[0].last.received);
  EXPECT_TRUE(ranks[1].last.received);
  EXPECT_FALSE(ranks[1].last.chief_received);
  EXPECT_EQ(ranks[1].last.recovery, 1u);
  EXPECT_EQ(ranks[1].last.step, 4);
  EXPECT_EQ(ranks[1].last.bytes, 5010 * 4 + 8);
  ASSERT_TRUE(job.daemon_.WaitFor([&] {
    return job.daemon_.joined_as[KeyOfRank(1)] == std::make_pair(1u, true);
  }));
  // Step 4 had a checkpoint, and all had voted: it was in flight.
  EXPECT_EQ(ranks[2].abandoned, 1);
  EXPECT_EQ(ranks[2].published, 2);
  const std::vector<std::string> events = job.Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0],
              AllOf(HasSubstr("recovery 1: 2 ranks went on with step 5 after"),
                    HasSubstr("; rank 1 received 19.6 KiB in")));
  // The survivors said that they wait; a new Welcome makes them say it again.
  std::set<RankKey> parked;
  job.daemon_.With([&](RankLinkServer*) {
    for (const auto& [key, report] : job.daemon_.reports) {
      if (report.parked() > 0) {
        EXPECT_EQ(report.parked(), 1u);
        parked.insert(key);
      }
    }
  });
  EXPECT_EQ(parked, (std::set<RankKey>{KeyOfRank(0), KeyOfRank(2)}));
}

TEST_P(RecoveryTest, TheFirstRankIsReplacedToo) {
  Job job(GetParam(), 3, 8);
  const std::vector<Rank> ranks =
      job.Run({{.rank = 0, .step = 3, .point = Point::kHalfReduced}});
  ExpectUndisturbed(job, ranks, 8);
  for (const Rank& rank : ranks) EXPECT_TRUE(rank.last.chief_received);
}

TEST_P(RecoveryTest, ARankMayDieBetweenReducingAndCommitting) {
  for (const Point point : {Point::kAfterFinish, Point::kAfterCommit}) {
    Job job(GetParam(), 3, 8);
    ExpectUndisturbed(job, job.Run({{.rank = 2, .step = 4, .point = point}}),
                      8);
  }
}

TEST_P(RecoveryTest, TwoRanksDieAtOnce) {
  Job job(GetParam(), 4, 8);
  ExpectUndisturbed(
      job,
      job.Run({{.rank = 0, .step = 4, .point = Point::kHalfReduced},
               {.rank = 3, .step = 4, .point = Point::kHalfReduced}}),
      8);
}

TEST_P(RecoveryTest, ADeathDuringARecoveryLeadsToTheNextOne) {
  Job job(GetParam(), 3, 8);
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced},
               {.rank = 2, .step = 3, .point = Point::kInRecover}});
  ExpectUndisturbed(job, ranks, 8);
  EXPECT_EQ(ranks[0].last.recovery, 2u);
  // The replacement dies as well, and its own.
  Job again(GetParam(), 3, 8);
  ExpectUndisturbed(
      again,
      again.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced},
                 {.rank = 1, .step = 0, .point = Point::kInRecover},
                 {.rank = 1, .step = 0, .point = Point::kInRecover}}),
      8);
}

TEST_P(RecoveryTest, OneRecoveryAfterTheOther) {
  Job job(GetParam(), 3, 20);
  std::vector<Death> deaths;
  for (int i = 0; i < 8; ++i) {
    deaths.push_back(
        {.rank = i % 3, .step = 2 * i + 2, .point = static_cast<Point>(i % 3)});
  }
  const std::vector<Rank> ranks = job.Run(deaths);
  ExpectUndisturbed(job, ranks, 20);
  EXPECT_EQ(ranks[0].last.recovery, 8u);
}

TEST_P(RecoveryTest, TheOrderIsLearnedWhoeverDies) {
  for (int64_t step = 1; step <= 4; ++step) {
    for (const int rank : {0, 2}) {
      Job job(GetParam(), 3, 7);
      job.learn_order = true;
      // In step 2: the others are learning it, in Commit.
      ExpectUndisturbed(
          job,
          job.Run({{.rank = rank, .step = step, .point = Point::kAfterFinish}}),
          7);
    }
  }
}

TEST_P(RecoveryTest, AnOrderToStopSurvives) {
  Job job(GetParam(), 3, 1000);
  job.stop_at = 5;
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 6, .point = Point::kAfterFinish},
               {.rank = 0, .step = 6, .point = Point::kHalfReduced}});
  const int64_t stopped = ranks[0].model.steps;
  EXPECT_LT(stopped, 1000);
  ExpectUndisturbed(job, ranks, stopped);
}

// While they wait the ranks meet again and again, so all must wait equally
// often: also a new process, which has not waited yet.
TEST_P(RecoveryTest, AllWaitAlikeForSpaceAfterARankWasLost) {
  Job job(GetParam(), 3, 4);
  job.at_end = [](Rank* rank) -> Status {
    Session* const session = rank->session.get();
    const Status full = ResourceExhausted("{}", std::strerror(ENOSPC));
    LOCKSTEP_ASSIGN_OR_RETURN(const bool again, session->AwaitSpace(full));
    EXPECT_TRUE(again);
    const bool replaced = rank->recoveries > 0;
    if (!replaced && session->rank() == 1) return DeadRank();
    // As the next attempt to save. A rank that waits longer is still waiting.
    double ranks = 1;
    LOCKSTEP_RETURN_IF_ERROR(session->AllReduceSum({&ranks, 1}));
    EXPECT_EQ(ranks, 3);
    return OkStatus();
  };
  ExpectUndisturbed(job, job.Run(), 4);
}

TEST_P(RecoveryTest, AReplacementWithAnotherConfigurationIsRefused) {
  Job job(GetParam(), 3, 8);
  job.replacement_config = {{"model", "mlp"}};
  job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(ReasonOf(job.ends[static_cast<size_t>(r)]), "CONFIG_MISMATCH")
        << job.ends[static_cast<size_t>(r)];
  }
}

TEST_P(RecoveryTest, ARankWaitsNoLongerThanItMay) {
  Job job(GetParam(), 2, 8);
  job.coordinator = false;
  job.options.hold_timeout = milliseconds(200);
  job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  EXPECT_TRUE(Session::IsVictim(job.ends[0])) << job.ends[0];
  EXPECT_THAT(Message(job.ends[0]), HasSubstr("no recovery"));
}

TEST_P(RecoveryTest, TheEndOfTheGenerationEndsTheWait) {
  Job job(GetParam(), 2, 8);
  job.coordinator = false;
  std::thread coordinator([&] {
    ASSERT_TRUE(job.daemon_.WaitFor([&] {
      for (const auto& [key, report] : job.daemon_.reports) {
        if (report.parked() == 1) return true;
      }
      return false;
    }));
    job.daemon_.With([&](RankLinkServer* server) {
      server->SendAbort(KeyOfRank(0), "the gang restarts");
    });
  });
  job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  coordinator.join();
  EXPECT_TRUE(Session::IsVictim(job.ends[0])) << job.ends[0];
  EXPECT_THAT(Message(job.ends[0]), HasSubstr("the gang restarts"));
}

TEST_P(RecoveryTest, ASessionThatIsNotRecoverableHasAVictim) {
  Job job(GetParam(), 2, 8);
  job.coordinator = false;
  job.options.recoverable = false;
  job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  EXPECT_TRUE(Session::IsVictim(job.ends[0])) << job.ends[0];
}

TEST(RecoverAloneTest, ThereIsNothingToRecoverFrom) {
  ClearRankEnvironment();
  auto session = *Session::Join({.recoverable = true});
  ASSERT_TRUE(session->Form({}).ok());
  auto reducer = *session->MakeReducer(kModel, {});
  const Status lost = WithReason(Unavailable("rank 1 is gone"), "PEER_LOST");
  EXPECT_FALSE(CanRecover(*session, lost));
  EXPECT_EQ(Recover(session.get(), lost, reducer.get(), {}).status(), lost);
  EXPECT_FALSE(Recover(session.get(), OkStatus(), reducer.get(), {}).ok());
}

}  // namespace
}  // namespace lockstep::worker::runtime
