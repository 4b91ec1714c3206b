// The choice itself: offers and choices as text, and every rule.
#include "worker/collective/factory/backend_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/collective/hierarchical/plan_line.h"
#include "worker/collective/removed_backend.h"
#include "worker/collective/tcp/plan.h"

namespace lockstep::worker::collective {
namespace {

using hierarchical::GroupingText;
using hierarchical::HierarchicalPlanLine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RankOffer OfferOn(const std::string& host, const std::string& wish = "auto") {
  return {.device = "",
          .library = "",
          .why_not = "has no GPU",
          .host = host,
          .host_name = host.empty() ? "" : "name-of-" + host,
          .wish = wish};
}
RankOffer Gpu(const std::string& device, const std::string& host = "a") {
  RankOffer offer = OfferOn(host);
  offer.device = device;
  offer.library = "NCCL 2.28.9";
  offer.why_not = "";
  return offer;
}

TEST(ChooseBackendTest, AutoTakesWhatTheRanksHave) {
  RankOffer older = Gpu("b/1", "b");
  older.library = "NCCL 2.27.3";
  RankOffer broken = OfferOn("a");
  broken.why_not = "has no NCCL: none is installed";
  const struct {
    std::vector<RankOffer> offers;
    std::string backend;
    std::string why;
  } kCases[] = {
      {{Gpu("a/1"), Gpu("a/2"), Gpu("b/1", "b")},
       "nccl",
       "backend nccl: each of the 3 ranks has a GPU of its own (NCCL 2.28.9)"},
      {{OfferOn("a"), OfferOn("a")},
       "shm",
       "backend shm: all 2 ranks are on one host"},
      {{OfferOn("a"), OfferOn("b"), OfferOn("c")},
       "tcp",
       "backend tcp: each of the 3 ranks has a host of its own"},
      {{OfferOn("a"), OfferOn("b"), OfferOn("a"), OfferOn("b")},
       "hierarchical",
       "backend hierarchical: 4 ranks are on 2 hosts, 2 on each"},
      {{OfferOn("a"), OfferOn("a"), OfferOn("b")},
       "hierarchical",
       "backend hierarchical: 3 ranks are on 2 hosts, 1 to 2 on each"},
      // Ranks that do not know their hosts share with nobody.
      {{OfferOn(""), OfferOn("")},
       "tcp",
       "backend tcp: each of the 2 ranks has a host of its own"},
      {{Gpu("a/1"), OfferOn("a")},
       "shm",
       "backend shm: all 2 ranks are on one host; not nccl: rank 1 has no GPU"},
      {{broken, broken},
       "shm",
       "backend shm: all 2 ranks are on one host; not nccl: rank 0 has no "
       "NCCL: none is installed"},
      {{Gpu("a/1"), Gpu("a/2"), Gpu("a/1")},
       "shm",
       "backend shm: all 3 ranks are on one host; not nccl: ranks 0 and 2 have "
       "the same GPU, a/1"},
      {{Gpu("a/1"), older},
       "tcp",
       "backend tcp: each of the 2 ranks has a host of its own; not nccl: rank "
       "0 has NCCL 2.28.9, rank 1 has NCCL 2.27.3"},
  };
  for (const auto& c : kCases) {
    const auto choice = ChooseBackend(c.offers);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->backend, c.backend);
    EXPECT_EQ(choice->why, c.why);
    EXPECT_EQ(choice->hosts.size(), c.offers.size());
  }
}

TEST(ChooseBackendTest, HostsAreNumberedByTheirFirstRanks) {
  EXPECT_THAT(ChooseBackend({OfferOn("z"), OfferOn(""), OfferOn("a"),
                             OfferOn("z"), OfferOn(""), OfferOn("a")})
                  ->hosts,
              ElementsAre(0, 1, 2, 0, 3, 2));
}

TEST(ChooseBackendTest, AWishIsGrantedOrRefusedWithNames) {
  const auto refuses = [](const std::vector<RankOffer>& offers,
                          const char* text) {
    const Status status = ChooseBackend(offers).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr(text));
  };
  for (const char* wish : {"shm", "tcp", "hierarchical", "other"}) {
    const auto choice = ChooseBackend({OfferOn("a", wish), OfferOn("a", wish)});
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->backend, wish);
    EXPECT_EQ(choice->why, fmt::format("backend {}: asked for by name", wish));
  }
  EXPECT_EQ(ChooseBackend({OfferOn("a", "tcp"), OfferOn("b", "tcp")})->backend,
            "tcp");
  refuses({OfferOn("a", "shm"), OfferOn("a", "shm"), OfferOn("b", "shm")},
          "backend shm needs all ranks on one host, as one user: rank 0 on "
          "name-of-a, rank 2 on name-of-b");
  refuses({OfferOn("", "shm"), OfferOn("", "shm")},
          "rank 1 on a host without a name");
  refuses({OfferOn("a", "nccl"), OfferOn("a", "nccl")},
          "backend nccl cannot be used: rank 0 has no GPU");
  refuses({OfferOn("a", "shm"), OfferOn("a", "auto")},
          "the ranks ask for different backends: rank 0 for shm, rank 1 for "
          "auto");
  refuses(std::vector<RankOffer>(129, OfferOn("a", "shm")),
          "backend shm is for at most 128 ranks on one host, not for 129");
  EXPECT_EQ(ChooseBackend(std::vector<RankOffer>(129, OfferOn("a")))->why,
            "backend tcp: 129 ranks are on one host, and at most 128 share "
            "memory");
  EXPECT_EQ(ChooseBackend(std::vector<RankOffer>(128, OfferOn("a")))->backend,
            "shm");
  refuses({}, "no ranks");
}

TEST(ChooseBackendTest, ARemovedBackendIsRefusedWithWhatToUse) {
  const Status status = CheckNotRemoved("gloo");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "backend gloo is no longer available; use tcp, or auto, which "
            "chooses by where the ranks are");
  EXPECT_EQ(CheckNotRemoved("tcp"), OkStatus());
}

TEST(OfferTest, RoundTripsAndRefusesOtherBytes) {
  RankOffer offer = Gpu("host/GPU-1", "boot net:[1] 0");
  offer.wish = "shm";
  const auto gpu = DecodeOffer(EncodeOffer(offer));
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu->device, "host/GPU-1");
  EXPECT_EQ(gpu->library, "NCCL 2.28.9");
  EXPECT_EQ(gpu->host, "boot net:[1] 0");
  EXPECT_EQ(gpu->host_name, "name-of-boot net:[1] 0");
  EXPECT_EQ(gpu->wish, "shm");
  offer.device = "";
  offer.why_not = "a\tb\nc";
  EXPECT_EQ(DecodeOffer(EncodeOffer(offer))->why_not, "a b c");
  for (const char* bad : {"", "x", "a\tb\tc", "1\t2\t3\t4\t5\t6\t7"}) {
    EXPECT_EQ(DecodeOffer(bad).status().code(), StatusCode::kInvalidArgument);
  }
  // What a stranger wrote does not reach a log as it is.
  EXPECT_EQ(DecodeOffer("\t\tx\x1b[2J\t\t\t")->why_not, "x [2J");
  EXPECT_EQ(
      DecodeOffer("\t\t" + std::string(9000, 'x') + "\t\t\t")->why_not.size(),
      2048u);
  EXPECT_FALSE(DecodeOffer("\t\t\t\t\t")->why_not.empty());
}

StatusOr<BackendChoice> ThereAndBack(const StatusOr<BackendChoice>& choice,
                                     int size, size_t piece = 32 << 10) {
  return DecodeChoice(EncodeChoice(choice, piece), size);
}

TEST(ChoiceTextTest, RoundTripsWithItsHosts) {
  const BackendChoice choice{
      "hierarchical", {0, 0, 0, 1, 0, 1, 1}, "because", "hierarchical ranks=7"};
  for (const size_t piece : {size_t{33}, size_t{40}, size_t{32 << 10}}) {
    const auto back = ThereAndBack(choice, 7, piece);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->backend, choice.backend);
    EXPECT_EQ(back->hosts, choice.hosts);
    EXPECT_EQ(back->why, choice.why);
    EXPECT_EQ(back->plan, choice.plan);
  }
  EXPECT_GT(EncodeChoice(choice, 40).size(), 1u);
  EXPECT_EQ(*PiecesOf(EncodeChoice(choice, 40)[0]),
            static_cast<int>(EncodeChoice(choice, 40).size()));
}

TEST(ChoiceTextTest, ARefusalStaysOne) {
  const auto back =
      ThereAndBack(DeadlineExceeded("rank 3 did not come\nin time"), 4);
  EXPECT_EQ(back.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Message(back.status()), "rank 3 did not come in time");
  EXPECT_EQ(ReasonOf(back.status()), "");
  const auto refused = ThereAndBack(
      WithReason(InvalidArgument("not this plan"), kReasonPlanRefused), 4);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(refused.status()), "not this plan");
  EXPECT_EQ(ReasonOf(refused.status()), kReasonPlanRefused);
}

TEST(ChoiceTextTest, FourThousandRanksAreOnePieceWhereverTheyAre) {
  BackendChoice choice{"hierarchical", {}, std::string(2048, 'w')};
  for (int hosts : {1, 8, 512, 2048, 4096}) {
    for (const bool scattered : {false, true}) {
      choice.hosts.clear();
      for (int rank = 0; rank < 4096; ++rank) {
        choice.hosts.push_back(scattered ? rank % hosts
                                         : rank / (4096 / hosts));
      }
      const auto pieces = EncodeChoice(choice);
      EXPECT_EQ(pieces.size(), 1u);
      EXPECT_LE(pieces[0].size(), size_t{32 << 10});
      EXPECT_EQ(DecodeChoice(pieces, 4096)->hosts, choice.hosts);
    }
  }
}

TEST(ChoiceTextTest, OtherBytesAreRefused) {
  const std::string good = EncodeChoice(BackendChoice{"shm", {0, 0}, "w"})[0];
  ASSERT_TRUE(DecodeChoice({good}, 2).ok());
  EXPECT_FALSE(DecodeChoice({good}, 3).ok());
  EXPECT_FALSE(DecodeChoice({good, good}, 2).ok());
  for (const char* bad :
       {"", "x", "choice2", "choice2 \n", "choice2 1\n",
        "choice2 0\n0\na\nb\n0\n", "choice2 1\n0\nshm\nw\n0,2\n",
        "choice2 1\n0\nshm\nw\n0*3\n", "choice2 1\n0\nshm\nw\n0,\n",
        "choice2 1\n0\nshm\nw\n1*2\n", "choice2 1\n0\nshm\nw\n0*0,0*2\n",
        "choice2 1\n0\n\nw\n0*2\n", "choice2 1\n99\nshm\nw\n0*2\n",
        "choice2 1\n0\nshm\nw\n0*-2\n", "choice2 1\n0\nshm\nw\n0*99999999999\n",
        "choice2 99999\n0\nshm\nw\n0*2\n", "choice2 1\n0\nshm\nw\n0*2\n\nmore",
        "choice2 1\n0\nshm\nw\n0*2"}) {
    EXPECT_EQ(DecodeChoice({bad}, 2).status().code(),
              StatusCode::kInvalidArgument)
        << bad;
  }
  EXPECT_FALSE(DecodeChoice({}, 2).ok());
}

TEST(ReductionPlanTest, IsHeldAgainstTheBackendSizeAndGrouping) {
  const std::string tcp2 =
      tcp::PlanLine(tcp::MakePlan(2, tcp::HostSharing::kNone), 2);
  const std::string tcp3 =
      tcp::PlanLine(tcp::MakePlan(3, tcp::HostSharing::kNone), 3);
  const BackendChoice shm{"shm", {0, 0}, ""};
  const BackendChoice tcp{"tcp", {0, 1}, ""};
  const BackendChoice both{"hierarchical", {0, 0, 1, 1}, ""};
  const BackendChoice uneven{"hierarchical", {0, 0, 0, 1}, ""};
  EXPECT_TRUE(CheckReductionPlan(shm, "shm ranks=2").ok());
  EXPECT_TRUE(CheckReductionPlan(tcp, tcp2).ok());
  EXPECT_TRUE(
      CheckReductionPlan(both, HierarchicalPlanLine(both.hosts, tcp2)).ok());
  EXPECT_TRUE(
      CheckReductionPlan(uneven, HierarchicalPlanLine(uneven.hosts, tcp2))
          .ok());
  const auto expect = [](const BackendChoice& choice, const std::string& line,
                         const char* one, const char* other) {
    const Status status = CheckReductionPlan(choice, line);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(Message(status), AllOf(HasSubstr(one), HasSubstr(other)));
  };
  expect(shm, "shm ranks=3", "shm ranks=3", "shm ranks=2");
  expect(shm, tcp2, "backend tcp", "with shm");
  expect(tcp, tcp3, "for 3 ranks", "here are 2");
  expect(tcp, tcp2 + " ", "not a reduction plan", "streams=1 ");
  expect(tcp, "", "backend ", "with tcp");
  expect(both, HierarchicalPlanLine(uneven.hosts, tcp2), "hosts=0*3,1",
         "hosts=2x2");
  expect(both, HierarchicalPlanLine({0, 1, 0, 1}, tcp2), "hosts=0,1,0,1",
         "hosts=2x2");
  expect(both, HierarchicalPlanLine(both.hosts, tcp3), "for 3 ranks",
         "here are 2");
  expect(both, HierarchicalPlanLine(both.hosts, ""), "not a reduction plan",
         "");
  expect({"nccl", {0, 1}, ""}, "nccl x", "\"nccl x\"", "always empty");
}

TEST(ReductionPlanTest, GroupingsOfManyRanksStayShort) {
  std::vector<int> hosts;
  for (int rank = 0; rank < 4096; ++rank) hosts.push_back(rank / 8);
  EXPECT_EQ(GroupingText(hosts), "512x8");
  std::vector<int> scattered;
  for (int rank = 0; rank < 4096; ++rank) scattered.push_back(rank % 512);
  const std::string text = GroupingText(scattered);
  EXPECT_LT(text.size(), 100u);
  scattered.back() = 0;
  EXPECT_NE(GroupingText(scattered), text);
}

}  // namespace
}  // namespace lockstep::worker::collective
