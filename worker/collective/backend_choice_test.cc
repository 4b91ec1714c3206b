#include "worker/collective/backend_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "worker/collective/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

RankOffer Gpu(const std::string& device) {
  return {.device = device, .library = "NCCL 2.28.9", .why_not = ""};
}
RankOffer None(const std::string& why) {
  return {.device = "", .library = "", .why_not = why};
}

TEST(ChooseBackendTest, Table) {
  RankOffer older = Gpu("b/1");
  older.library = "NCCL 2.27.3";
  const struct {
    std::vector<RankOffer> offers;
    bool nccl;
    const char* why;
  } kCases[] = {
      {{Gpu("a/1"), Gpu("a/2"), Gpu("b/1")},
       true,
       "backend nccl: each of the 3 ranks has a GPU of its own (NCCL 2.28.9)"},
      {{Gpu("a/1")},
       true,
       "backend nccl: each of the 1 ranks has a GPU of its own (NCCL 2.28.9)"},
      {{Gpu("a/1"), None("has no GPU")},
       false,
       "backend gloo: rank 1 has no GPU"},
      {{None("has no GPU"), None("has no NCCL")},
       false,
       "backend gloo: rank 0 has no GPU"},
      {{Gpu("a/1"), Gpu("a/2"), Gpu("a/1")},
       false,
       "backend gloo: ranks 0 and 2 have the same GPU, a/1"},
      {{Gpu("a/1"), older},
       false,
       "backend gloo: rank 0 has NCCL 2.28.9, rank 1 has NCCL 2.27.3"},
      {{}, false, "backend gloo: there are no ranks"},
  };
  for (const auto& c : kCases) {
    const BackendChoice choice = ChooseBackend(c.offers);
    EXPECT_EQ(choice.nccl, c.nccl);
    EXPECT_EQ(choice.why, c.why);
  }
}

TEST(OfferTest, RoundTripsAndRefusesOtherBytes) {
  const auto gpu = DecodeOffer(EncodeOffer(Gpu("host/GPU-1")));
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu->device, "host/GPU-1");
  EXPECT_EQ(gpu->library, "NCCL 2.28.9");
  EXPECT_EQ(DecodeOffer(EncodeOffer(None("a\tb\nc")))->why_not, "a b c");
  for (const char* bad : {"", "x", "a\tb", "a\tb\tc\td"}) {
    EXPECT_EQ(DecodeOffer(bad).status().code(), StatusCode::kInvalidArgument);
  }
  // What a stranger wrote does not reach a log as it is.
  EXPECT_EQ(DecodeOffer("\t\tx\x1b[2J")->why_not, "x [2J");
  EXPECT_EQ(
      DecodeOffer(std::string("\t\t") + std::string(9000, 'x'))->why_not.size(),
      2048u);
  EXPECT_FALSE(DecodeOffer("\t\t")->why_not.empty());
}

std::vector<StatusOr<BackendChoice>> Agree(const std::vector<RankOffer>& all) {
  const int n = static_cast<int>(all.size());
  MapRendezvousStore store;
  std::vector<StatusOr<BackendChoice>> results(n, BackendChoice{});
  SpawnRanks(n, [&](int rank) {
    results[rank] = AgreeOnBackend(TestOptions(rank, n, &store), all[rank]);
  });
  return results;
}

TEST(AgreeTest, AllRanksComeToTheSame) {
  for (const auto& choice : Agree({Gpu("a/1"), Gpu("a/2"), Gpu("b/1")})) {
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_TRUE(choice->nccl);
  }
  for (const auto& choice : Agree({Gpu("a/1"), None("has no GPU"), Gpu("b")})) {
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_FALSE(choice->nccl);
    EXPECT_EQ(choice->why, "backend gloo: rank 1 has no GPU");
  }
}

TEST(AgreeTest, ARankThatDoesNotComeIsNamed) {
  MapRendezvousStore store;
  CommunicatorOptions options = TestOptions(0, 2, &store);
  options.forming_deadline = Now() + std::chrono::milliseconds(30);
  const Status status = AgreeOnBackend(options, Gpu("a/1")).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(status), HasSubstr("waiting for rank 1"));
  // A rank without a GPU waits for nobody.
  options.rank = 1;
  EXPECT_TRUE(AgreeOnBackend(options, None("has no GPU")).ok());
}

TEST(AgreeTest, BytesOfAStrangerAreRefused) {
  MapRendezvousStore store;
  ASSERT_TRUE(store.Put("backend/1", "what is this").ok());
  const Status status =
      AgreeOnBackend(TestOptions(0, 2, &store), Gpu("a/1")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("rank 1 wrote"));
}

// The whole factory, on a host of any kind: no rank has a GPU.
TEST(FactoryTest, AutoWithoutGpusIsGlooAndSaysWhy) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(2, [&](int rank) {
    std::string why;
    auto options = TestOptions(rank, 2, &store);
    options.backend = "auto";
    options.choice = &why;
    const auto formed = FormCommunicator(options);
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_EQ((*formed)->backend(), "gloo");
    EXPECT_EQ(why, fmt::format("backend gloo: rank {} has no GPU", rank));
    EXPECT_EQ((*formed)->AllocateOnDevice(8).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_TRUE(lockstep::Run(formed->get(), {.kind = CollectiveKind::kBarrier},
                              std::chrono::seconds(20))
                    .ok());
  });
}

TEST(FactoryTest, OneRankIsSelfWithoutAWord) {
  std::string why;
  auto options = TestOptions(0, 1, nullptr);
  options.backend = "auto";
  options.device = 0;
  options.choice = &why;
  const auto formed = FormCommunicator(options);
  ASSERT_TRUE(formed.ok()) << formed.status();
  EXPECT_EQ((*formed)->backend(), "self");
  EXPECT_EQ(why, "");
}

TEST(FactoryTest, AskingForNcclWithoutAGpuIsOneSentence) {
  MapRendezvousStore store;
  SpawnRanks(2, [&](int rank) {
    auto options = TestOptions(rank, 2, &store);
    options.backend = "nccl";
    const Status status = FormCommunicator(options).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(Message(status),
              fmt::format("job test g1: backend nccl cannot be used: rank {} "
                          "has no GPU",
                          rank));
  });
}

TEST(FactoryTest, AModuleThatIsNotThereIsNotFatalToAuto) {
  MapRendezvousStore store;
  auto options = TestOptions(0, 2, &store);
  options.backend = "nccl";
  options.device = 0;
  options.module_dir = "/nowhere";
  const Status status = FormCommunicator(options).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr("rank 0 has no NCCL: backend nccl is not installed: "
                        "there is no /nowhere/collective-nccl.so"));
}

}  // namespace
}  // namespace lockstep
