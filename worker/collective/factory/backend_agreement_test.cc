// All ranks come to one backend, through a store and through the factory.
#include "worker/collective/factory/backend_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/factory/host_identity.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

RankOffer On(const std::string& host, const std::string& wish = "auto") {
  return {.device = "",
          .library = "",
          .why_not = "has no GPU",
          .host = host,
          .host_name = "name-of-" + host,
          .wish = wish};
}

std::vector<StatusOr<BackendChoice>> Agree(const std::vector<RankOffer>& all,
                                           RendezvousStore* store) {
  const int n = static_cast<int>(all.size());
  std::vector<StatusOr<BackendChoice>> results(n, BackendChoice{});
  SpawnRanks(n, [&](int rank) {
    results[rank] = AgreeOnBackend(TestOptions(rank, n, store), all[rank]);
  });
  return results;
}

TEST(AgreeTest, AllRanksComeToTheSame) {
  MapRendezvousStore store;
  for (const auto& choice :
       Agree({On("a"), On("b"), On("a"), On("b")}, &store)) {
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->backend, "hierarchical");
    EXPECT_THAT(choice->hosts, ElementsAre(0, 1, 0, 1));
  }
}

TEST(AgreeTest, AllRanksGetTheSameRefusal) {
  MapRendezvousStore store;
  for (const auto& choice :
       Agree({On("a", "shm"), On("a", "shm"), On("b", "shm")}, &store)) {
    EXPECT_EQ(choice.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(Message(choice.status()),
              "job test g1: backend shm needs all ranks on one host, as one "
              "user: rank 0 on name-of-a, rank 2 on name-of-b");
  }
}

TEST(AgreeTest, RanksThatDoNotComeAreNamedToAll) {
  MapRendezvousStore store;
  // Ranks 1, 3 and 4 of six never come.
  constexpr int kCome[] = {0, 2, 5};
  const MonoTime deadline = MonotonicNow() + seconds(1);
  SpawnRanks(3, [&](int i) {
    auto options = TestOptions(kCome[i], 6, &store);
    options.forming_deadline = deadline;
    const Status status = AgreeOnBackend(options, On("a")).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Message(status),
              "job test g1: rank 1, 3, 4 of 6 did not come in time");
    EXPECT_GE(MonotonicNow(), deadline);
    EXPECT_LT(MonotonicNow() - deadline, seconds(5));
  });
}

TEST(AgreeTest, ARankZeroThatDoesNotComeIsNamed) {
  MapRendezvousStore store;
  auto options = TestOptions(1, 2, &store);
  options.forming_deadline = MonotonicNow() + milliseconds(20);
  const Status status = AgreeOnBackend(options, On("a")).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(status), HasSubstr("rank 0 did not choose"));
}

TEST(AgreeTest, WhatCannotBeGoodIsNotWaitedFor) {
  // Rank 1 of three never comes; rank 2 is not waited for.
  MapRendezvousStore store;
  const auto none = On("a", "nccl");
  const MonoTime start = MonotonicNow();
  EXPECT_THAT(Message(AgreeOnBackend(TestOptions(0, 3, &store), none).status()),
              HasSubstr("backend nccl cannot be used: rank 0 has no GPU"));
  EXPECT_THAT(Message(AgreeOnBackend(TestOptions(2, 3, &store), none).status()),
              HasSubstr("rank 2 has no GPU"));
  MapRendezvousStore other;
  ASSERT_TRUE(other.Put("backend/offer/1", EncodeOffer(On("a", "tcp"))).ok());
  EXPECT_THAT(
      Message(AgreeOnBackend(TestOptions(0, 3, &other), On("a")).status()),
      HasSubstr("rank 0 for auto, rank 1 for tcp"));
  EXPECT_LT(MonotonicNow() - start, seconds(10));
}

TEST(AgreeTest, BytesOfAStrangerAreRefused) {
  MapRendezvousStore store;
  ASSERT_TRUE(store.Put("backend/offer/1", "what is this").ok());
  const Status status =
      AgreeOnBackend(TestOptions(0, 2, &store), On("a")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("rank 1 wrote"));
  MapRendezvousStore other;
  ASSERT_TRUE(other.Put("backend/choice", "what is this").ok());
  EXPECT_EQ(AgreeOnBackend(TestOptions(1, 2, &other), On("a")).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(HostIdentityTest, IsTheSameInTheWholeProcessAndNoName) {
  const std::string mine = HostIdentity();
  EXPECT_FALSE(mine.empty());
  EXPECT_EQ(mine, HostIdentity());
  EXPECT_THAT(mine, AllOf(HasSubstr("net:["), HasSubstr("user:[")));
  EXPECT_THAT(HostName("10.0.0.7"), HasSubstr("10.0.0.7"));
}

// The whole factory, on a host of any kind: no rank has a GPU.
TEST(FactoryTest, AutoOnOneHostIsShmAndSaysWhy) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  std::vector<std::string> plans(2);
  SpawnRanks(2, [&](int rank) {
    std::string why;
    auto options = TestOptions(rank, 2, &store);
    options.backend = "auto";
    const auto formed = FormCommunicator(options, &why);
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_EQ((*formed)->backend(), "shm");
    plans[rank] = (*formed)->ReductionPlan();
    EXPECT_THAT(why, HasSubstr("backend shm: all 2 ranks are on one host; "));
    EXPECT_EQ((*formed)->AllocateOnDevice(8).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_TRUE(collective::Run(formed->get(),
                                {.kind = CollectiveKind::kBarrier}, seconds(20))
                    .ok());
  });
  EXPECT_EQ(plans[0], "shm ranks=2");
  EXPECT_EQ(plans[0], plans[1]);
}

// Ends of ranks that form by `plans`, each with its own.
std::vector<Status> FormedBy(const std::vector<std::string>& plans,
                             const std::vector<std::string>& hosts,
                             std::vector<std::string>* made = nullptr) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  const int n = static_cast<int>(hosts.size());
  std::vector<Status> ends(n);
  if (made != nullptr) made->resize(n);
  SpawnRanks(n, [&](int rank) {
    auto options = TestOptions(rank, n, &store);
    options.backend = "auto";
    options.host = hosts[rank];
    options.reduction_plan = plans[rank];
    const auto formed = FormCommunicator(options);
    ends[rank] = formed.status();
    if (!formed.ok()) return;
    if (made != nullptr) (*made)[rank] = (*formed)->ReductionPlan();
    // A plan that was given stays.
    const MonoTime deadline = MonotonicNow() + seconds(20);
    if (!plans[0].empty()) {
      EXPECT_TRUE((*formed)->Tune(seconds(10), deadline).ok());
      EXPECT_EQ((*formed)->ReductionPlan(), plans[0]);
    }
    ends[rank] = collective::Run(
        formed->get(), {.kind = CollectiveKind::kBarrier}, seconds(20));
  });
  return ends;
}

TEST(FactoryTest, APlanOfAnEarlierGenerationIsFollowed) {
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>{"a", "b"},
        {"a", "a", "b"},
        {"a", "a", "b", "b"},
        {"a", "a"}}) {
    std::vector<std::string> made;
    for (const Status& end :
         FormedBy(std::vector<std::string>(hosts.size()), hosts, &made)) {
      EXPECT_TRUE(end.ok()) << end;
    }
    for (const std::string& plan : made) EXPECT_EQ(plan, made[0]);
    // To rank 0 alone, or to all.
    std::vector<std::string> plans(hosts.size());
    plans[0] = made[0];
    std::vector<std::string> again;
    for (const Status& end : FormedBy(plans, hosts, &again)) {
      EXPECT_TRUE(end.ok()) << end;
    }
    EXPECT_EQ(again, made);
    for (const Status& end : FormedBy(made, hosts, &again)) {
      EXPECT_TRUE(end.ok()) << end;
    }
    EXPECT_EQ(again, made);
  }
}

TEST(FactoryTest, TuningMakesOnePlanForAllRanks) {
  signal(SIGPIPE, SIG_IGN);
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>{"a", "b"},
        {"a", "a", "b"},
        {"a", "a", "b", "b", "c", "c"},
        {"a", "a"}}) {
    MapRendezvousStore store;
    const int n = static_cast<int>(hosts.size());
    std::vector<std::string> plans(n);
    SpawnRanks(n, [&](int rank) {
      auto options = TestOptions(rank, n, &store);
      options.backend = "auto";
      options.host = hosts[rank];
      const auto formed = FormCommunicator(options);
      ASSERT_TRUE(formed.ok()) << formed.status();
      const Status tuned = (*formed)->Tune(std::chrono::milliseconds(30),
                                           MonotonicNow() + seconds(20));
      EXPECT_TRUE(tuned.ok()) << tuned;
      plans[rank] = (*formed)->ReductionPlan();
      auto buffer = (*formed)->Allocate(400000);
      ASSERT_TRUE(buffer.ok());
      static_cast<float*>((*buffer)->data)[99999] = 1;
      EXPECT_TRUE(
          collective::Run(formed->get(),
                          {.slice = {*buffer, 0, 100000, DataType::kFloat32}},
                          seconds(20))
              .ok());
      EXPECT_EQ(static_cast<float*>((*buffer)->data)[99999], n);
    });
    for (const std::string& plan : plans) EXPECT_EQ(plan, plans[0]);
    for (const Status& end : FormedBy(plans, hosts)) {
      EXPECT_TRUE(end.ok()) << end;
    }
  }
}

TEST(FactoryTest, APlanThatDoesNotFitIsRefusedOnAllRanks) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  for (const char* line :
       {"shm ranks=4", "tcp ranks=4", "nonsense",
        "hierarchical ranks=4 hosts=4x1", "hierarchical ranks=4 hosts=2x2"}) {
    for (const bool all : {true, false}) {
      std::vector<std::string> plans(4, all ? line : "");
      plans[0] = line;
      for (const Status& end : FormedBy(plans, hosts)) {
        EXPECT_EQ(end.code(), StatusCode::kInvalidArgument) << end;
        EXPECT_EQ(ReasonOf(end), kReasonPlanRefused) << end;
      }
    }
  }
}

TEST(AgreeTest, APlanThatRankZeroDoesNotHaveIsRefused) {
  MapRendezvousStore store;
  SpawnRanks(2, [&](int rank) {
    auto options = TestOptions(rank, 2, &store);
    if (rank == 1) options.reduction_plan = "shm ranks=2";
    RankOffer offer = On("a");
    const Status status = AgreeOnBackend(options, offer).status();
    if (rank == 0) {
      EXPECT_TRUE(status.ok()) << status;
      return;
    }
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("\"shm ranks=2\""),
                                       HasSubstr("and rank 0 none")));
    // The others form by rank 0's.
    EXPECT_EQ(ReasonOf(status), "");
  });
}

// What is chosen and told to people. Hosts are as the ranks call them: tests
// need no others.
std::string ChoiceOn(const std::vector<std::string>& hosts) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  const int n = static_cast<int>(hosts.size());
  std::vector<std::string> choices(n);
  SpawnRanks(n, [&](int rank) {
    auto options = TestOptions(rank, n, &store);
    options.backend = "auto";
    options.host = hosts[rank];
    const auto formed = FormCommunicator(options, &choices[rank]);
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_TRUE(choices[rank].starts_with(
        fmt::format("backend {}: ", (*formed)->backend())))
        << choices[rank];
    EXPECT_TRUE(collective::Run(formed->get(),
                                {.kind = CollectiveKind::kBarrier}, seconds(20))
                    .ok());
  });
  for (const std::string& choice : choices) EXPECT_EQ(choice, choices[0]);
  return choices[0];
}

// Backend, why, and an algorithm for each class of sizes.
TEST(FactoryTest, AutoFollowsTheHostsAndSaysHowItReduces) {
  EXPECT_THAT(
      ChoiceOn({"a", "b"}),
      MatchesRegex("backend tcp: .*; recursive doubling below [0-9]+ [KM]iB, "
                   ".*above it a ring in pieces of [0-9]+ .*B.*"));
  EXPECT_THAT(
      ChoiceOn({"a", "b", "a", "b"}),
      MatchesRegex(
          "backend hierarchical: 4 ranks are on 2 hosts, .*; 2 hosts of 2 "
          "ranks; from [0-9]+ KiB on each rank reduces its slice .* less goes "
          "through one rank of each host; between the hosts tcp: recursive "
          "doubling below .* above it a ring in pieces of .*"));
  EXPECT_THAT(ChoiceOn({"a", "a", "b"}),
              MatchesRegex("backend hierarchical: 3 ranks are on 2 hosts, .*; "
                           "3 ranks on 2 hosts, not equally many on each; one "
                           "rank of each host reduces between them; .*"));
}

TEST(FactoryTest, OneRankIsSelfWithoutAWord) {
  for (const char* backend : {"auto", "shm", "tcp", "hierarchical"}) {
    std::string why;
    auto options = TestOptions(0, 1, nullptr);
    options.backend = backend;
    options.device = 0;
    const auto formed = FormCommunicator(options, &why);
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_EQ((*formed)->backend(), "self");
    EXPECT_EQ(why, "");
  }
}

TEST(FactoryTest, AskingForNcclWithoutAGpuIsOneSentence) {
  signal(SIGPIPE, SIG_IGN);
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
  signal(SIGPIPE, SIG_IGN);
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

// What forming costs as the ranks become many: a few messages each.
class KeyCountingStore final : public RendezvousStore {
 public:
  Status Put(const std::string& key, std::string_view value) override {
    ++messages_;
    return store_.Put(key, value);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    ++messages_;
    return store_.Get(key, deadline);
  }
  int messages() const { return messages_; }

 private:
  MapRendezvousStore store_;
  std::atomic<int> messages_ = 0;
};

TEST(AgreementScaleTest, FiveHundredRanksAgreeWithThreeMessagesEach) {
  constexpr int kRanks = 512;
  std::vector<RankOffer> offers;
  for (int rank = 0; rank < kRanks; ++rank) {
    offers.push_back(On(fmt::format("host-{}", rank / 8)));
  }
  KeyCountingStore store;
  const MonoTime start = MonotonicNow();
  const auto choices = Agree(offers, &store);
  const double ms =
      std::chrono::duration<double, std::milli>(MonotonicNow() - start).count();
  for (const auto& choice : choices) {
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->backend, "hierarchical");
    EXPECT_EQ(choice->hosts.back(), 63);
  }
  // Its offer, rank 0's look at it, its look at the choice.
  EXPECT_LE(store.messages(), 3 * kRanks);
  fmt::print("512 ranks agreed in {:.1f} ms with {} messages\n", ms,
             store.messages());
}

}  // namespace
}  // namespace lockstep::worker::collective
