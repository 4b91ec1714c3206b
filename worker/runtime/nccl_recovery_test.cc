// Recoveries of whole sessions over nccl, with a state that lies on the GPU.
// Both are in memory, behind a module that sessions load as the real one.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/collective/nccl/nccl_fake_module.h"
#include "worker/runtime/recovery_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using ::testing::HasSubstr;

template <typename Function>
Function* InModule(const char* name) {
  static void* const kModule = dlopen(
      (std::string(LOCKSTEP_FAKE_MODULES) + "/collective-nccl.so").c_str(),
      RTLD_NOW | RTLD_LOCAL);
  auto* const function = reinterpret_cast<Function*>(dlsym(kModule, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

enum class Gradients { kOnHost, kOnDevice };

class GpuJob : public Job {
 public:
  GpuJob(int ranks, int64_t steps, Gradients where = Gradients::kOnHost)
      : Job("nccl", ranks, steps) {
    options.module_dir = LOCKSTEP_FAKE_MODULES;
    make_stream = InModule<decltype(lockstep_fake_gpu_make_stream)>(
        "lockstep_fake_gpu_make_stream");
    run_stream =
        InModule<decltype(lockstep_fake_gpu_run)>("lockstep_fake_gpu_run");
    gradients_on_device = where == Gradients::kOnDevice;
  }
  ~GpuJob() {
    const lockstep_fake_gpu gpu =
        InModule<decltype(lockstep_fake_gpu_now)>("lockstep_fake_gpu_now")();
    EXPECT_EQ(gpu.bytes_in_use, 0u);
    EXPECT_EQ(gpu.communicators_in_use, 0);
    EXPECT_EQ(gpu.wrong_threads, 0);
  }
};

TEST(NcclRecoveryTest, WithoutADeathNothingIsDifferent) {
  GpuJob job(2, 4);
  ExpectUndisturbed(job, job.Run(), 4);
  EXPECT_TRUE(job.Events().empty());
}

TEST(NcclRecoveryTest, ARankThatDiesIsReplacedWhereverItWas) {
  for (const Point point :
       {Point::kHalfReduced, Point::kAfterFinish, Point::kAfterCommit}) {
    for (const int rank : {0, 2}) {
      GpuJob job(3, 8, rank == 0 ? Gradients::kOnDevice : Gradients::kOnHost);
      const std::vector<Rank> ranks =
          job.Run({{.rank = rank, .step = 4, .point = point}});
      ExpectUndisturbed(job, ranks, 8);
      EXPECT_EQ(ranks[1].recoveries, 1);
      EXPECT_TRUE(ranks[rank].last.received);
      EXPECT_EQ(ranks[rank].last.bytes, 5010 * 4 + 8);
      const std::vector<std::string> events = job.Events();
      ASSERT_EQ(events.size(), 1u);
      // A survivor that was a step behind receives the state, too.
      EXPECT_THAT(events[0], HasSubstr("went on with step"));
    }
  }
}

TEST(NcclRecoveryTest, ADeathDuringARecoveryLeadsToTheNextOne) {
  GpuJob job(3, 8);
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced},
               {.rank = 2, .step = 3, .point = Point::kInRecover},
               {.rank = 1, .step = 0, .point = Point::kInRecover}});
  ExpectUndisturbed(job, ranks, 8);
  EXPECT_EQ(ranks[0].last.recovery, 3u);
}

// It has no state yet, and no reducer that a recovery could move.
TEST(NcclRecoveryTest, AReplacementThatMakesItsReducerFollowsTheNextRecovery) {
  for (const auto where : {Gradients::kOnHost, Gradients::kOnDevice}) {
    GpuJob job(3, 8, where);
    std::atomic<bool> first = true;
    job.before_reducer = [&](Session* session) {
      if (!first.exchange(false)) return;
      job.OrderRecovery();
      EXPECT_TRUE(collective::AwaitTrue(
          [&] { return !CheckMembership(session).ok(); }));
    };
    const std::vector<Rank> ranks =
        job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
    ExpectUndisturbed(job, ranks, 8);
    EXPECT_FALSE(first);
    EXPECT_EQ(ranks[0].last.recovery, 2u);
  }
}

TEST(NcclRecoveryTest, OneRecoveryAfterTheOther) {
  GpuJob job(3, 14, Gradients::kOnDevice);
  std::vector<Death> deaths;
  for (int i = 0; i < 5; ++i) {
    deaths.push_back(
        {.rank = i % 3, .step = 2 * i + 2, .point = static_cast<Point>(i % 3)});
  }
  const std::vector<Rank> ranks = job.Run(deaths);
  ExpectUndisturbed(job, ranks, 14);
  EXPECT_EQ(ranks[0].last.recovery, 5u);
}

TEST(NcclRecoveryTest, TheOrderIsLearnedWhoeverDies) {
  for (int64_t step = 1; step <= 4; ++step) {
    GpuJob job(3, 7);
    job.learn_order = true;
    ExpectUndisturbed(
        job, job.Run({{.rank = 2, .step = step, .point = Point::kAfterFinish}}),
        7);
  }
}

// NCCL waits for a rank that died after all had agreed on nccl, and only the
// next recovery ends that.
TEST(NcclRecoveryTest, AFormingThatHangsIsEndedByTheNextRecovery) {
  auto* const hang = InModule<decltype(lockstep_fake_gpu_hang_forming)>(
      "lockstep_fake_gpu_hang_forming");
  auto* const now =
      InModule<decltype(lockstep_fake_gpu_now)>("lockstep_fake_gpu_now");
  GpuJob job(2, 6);
  std::thread coordinator;
  job.before_replacing = [&] {
    hang(1);
    coordinator = std::thread([&] {
      // Both ranks form with NCCL.
      EXPECT_TRUE(collective::AwaitTrue(
          [&] { return now().communicators_in_use == 2; }));
      hang(0);
      job.OrderRecovery();
    });
  };
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 3, .point = Point::kAfterCommit}});
  coordinator.join();
  ExpectUndisturbed(job, ranks, 6);
  EXPECT_EQ(ranks[0].last.recovery, 2u);
}

class ElasticGpuJob : public GpuJob {
 public:
  ElasticGpuJob(int ranks, int64_t steps, Gradients where)
      : GpuJob(ranks, steps, where) {
    SetElastic();
    at_end = [](Rank* rank) {
      EXPECT_EQ(rank->session->communicator()->backend(), "nccl");
      return OkStatus();
    };
  }
};

TEST(NcclRecoveryTest, TheOthersOfAnElasticJobGoOnAndTheRankReturns) {
  for (const auto where : {Gradients::kOnHost, Gradients::kOnDevice}) {
    for (const Point point :
         {Point::kHalfReduced, Point::kAfterFinish, Point::kAfterCommit}) {
      for (const int rank : {0, 1}) {
        ElasticGpuJob job(3, 14, where);
        const std::vector<Rank> ranks =
            job.Run({{.rank = rank, .step = 4, .point = point}});
        ExpectUndisturbed(job, ranks, 14);
        EXPECT_EQ(ranks[rank == 0 ? 1 : 0].most_shards, 2u);
        EXPECT_EQ(ranks[2].most_shards, 1u);
        EXPECT_EQ(ranks[2].recoveries, 2);
        EXPECT_TRUE(ranks[rank].last.received);
        EXPECT_EQ(ranks[rank].recoveries, 1) << "it comes when all are ready";
      }
    }
  }
}

// It reduces with nccl alone, because its gradients may be on the GPU.
TEST(NcclRecoveryTest, OneRankOfAnElasticJobGoesOnAlone) {
  for (const auto where : {Gradients::kOnHost, Gradients::kOnDevice}) {
    ElasticGpuJob job(2, 14, where);
    const std::vector<Rank> ranks =
        job.Run({{.rank = 0, .step = 4, .point = Point::kAfterFinish}});
    ExpectUndisturbed(job, ranks, 14);
    EXPECT_EQ(ranks[1].most_shards, 2u);
  }
}

TEST(NcclRecoveryTest, ARankOfAnElasticJobComputesTheShardsOfSeveral) {
  for (const auto where : {Gradients::kOnHost, Gradients::kOnDevice}) {
    ElasticGpuJob job(4, 24, where);
    job.clip_norm = 1e9;  // Measured, and never reached.
    const std::vector<Rank> ranks =
        job.Run({{.rank = 3, .step = 4, .point = Point::kHalfReduced},
                 {.rank = 1, .step = 5, .point = Point::kHalfReduced},
                 {.rank = 2, .step = 6, .point = Point::kHalfReduced},
                 {.rank = 0, .step = 16, .point = Point::kAfterCommit}});
    ExpectUndisturbed(job, ranks, 24);
    // Unless one has returned before the next one was lost.
    EXPECT_GE(ranks[2].last.recovery, 4u);
  }
}

TEST(NcclRecoveryTest, ARankOfAnElasticJobIsLostWhileItReturns) {
  for (const auto where : {Gradients::kOnHost, Gradients::kOnDevice}) {
    ElasticGpuJob job(3, 20, where);
    const std::vector<Rank> ranks =
        job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced},
                 {.rank = 1, .step = 0, .point = Point::kInRecover}});
    ExpectUndisturbed(job, ranks, 20);
    EXPECT_TRUE(ranks[1].last.received);
  }
}

// Its reducer has a communicator of its own then, which is not that of the job.
// Where the others do not go on without it, it has a shard already.
TEST(NcclRecoveryTest, ARankThatReturnsMakesNoStepBeforeItRecovers) {
  for (const auto where : {Gradients::kOnHost, Gradients::kOnDevice}) {
    for (const bool goes_on : {true, false}) {
      ElasticGpuJob job(2, 14, where);
      job.goes_on = goes_on;
      std::atomic<int> asked = 0;
      job.before_recover = [&](Rank* rank, const Status& lost) {
        if (!lost.ok()) return;
        ++asked;
        EXPECT_EQ(rank->session->communicator(), nullptr);
        EXPECT_TRUE(rank->reducer->Ready(1).ok());
        EXPECT_TRUE(rank->reducer->Ready(0).ok());
        EXPECT_THAT(Message(rank->reducer->Finish({}).status()),
                    HasSubstr("call Recover first"));
        EXPECT_THAT(Message(rank->reducer->NextShard(1, 1)),
                    HasSubstr("call Recover first"));
        rank->reducer->ZeroGradients();
      };
      ExpectUndisturbed(
          job, job.Run({{.rank = 1, .step = 4, .point = Point::kAfterCommit}}),
          14);
      EXPECT_EQ(asked, 1);
    }
  }
}

TEST(NcclRecoveryTest, ARankThatHasReturnedMakesAnotherReducer) {
  for (const auto where : {Gradients::kOnHost, Gradients::kOnDevice}) {
    ElasticGpuJob job(2, 14, where);
    job.at_end = [](Rank* rank) { return StepWithAnotherReducer(rank); };
    ExpectUndisturbed(
        job, job.Run({{.rank = 1, .step = 4, .point = Point::kAfterCommit}}),
        14);
  }
}

// It has no peer yet, so the error is its own.
TEST(NcclRecoveryTest, ARankThatReturnsToAHostWithoutNcclSaysSo) {
  const TempDir dir;
  TestDaemon daemon(dir.path() + "/link");
  daemon.Expect(KeyOfRank(1), RankNonce(1), Welcome(1, 2, 1, {1}));
  SetRankEnvironment(daemon.path(), kRecoveredJob, kRecoveredGeneration, 1);
  SessionOptions options;
  options.backend = "nccl";
  options.module_dir = dir.path();
  options.recoverable = true;
  options.elastic = true;
  const auto session = Session::Join(options);
  ClearRankEnvironment();
  ASSERT_TRUE(session.ok()) << session.status();
  const Status formed = (*session)->Form({});
  EXPECT_EQ(formed.code(), StatusCode::kNotFound) << formed;
  EXPECT_THAT(Message(formed), HasSubstr("rank 1, before it joins the others"));
  EXPECT_FALSE(Session::IsVictim(formed)) << formed;
}

// It adds its shards up in the host's memory, although each rank has a GPU.
TEST(NcclRecoveryTest, AnElasticJobThatAsksForNoBackendGoesOnSmaller) {
  Job job("auto", 3, 12);
  job.options.module_dir = LOCKSTEP_FAKE_MODULES;
  job.SetElastic();
  job.at_end = [](Rank* rank) {
    EXPECT_EQ(rank->session->communicator()->backend(), "shm");
    return OkStatus();
  };
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  ExpectUndisturbed(job, ranks, 12);
  EXPECT_EQ(ranks[0].most_shards, 2u);
  // Without that, the same ranks take nccl.
  Job plain("auto", 2, 2);
  plain.options.module_dir = LOCKSTEP_FAKE_MODULES;
  plain.at_end = [](Rank* rank) {
    EXPECT_EQ(rank->session->communicator()->backend(), "nccl");
    return OkStatus();
  };
  ExpectUndisturbed(plain, plain.Run(), 2);
}

}  // namespace
}  // namespace lockstep::worker::runtime
