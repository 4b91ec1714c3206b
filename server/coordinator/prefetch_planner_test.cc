// What nodes fetch for jobs that wait, from the queue to the start.
#include <gmock/gmock.h>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class PrefetchTest : public CoordinatorTest {
 protected:
  PrefetchTest() {
    for (FakeDaemon* daemon : all_) {
      daemon->info.container_engine = "podman 4";
      Connect(daemon);
    }
    Run();
  }

  static std::string Sha(char digit) {
    return "sha256:" + std::string(64, digit);
  }
  static ImageContent Is(char digit, const NodeName& node = "") {
    return {"x:1", Sha(digit), "", node};
  }
  static ImageContent Any() { return {"x:1", "", "", ""}; }
  static std::vector<Prefetched> Got(const ImageContent& wanted, char digit,
                                     Duration took = 12'300ms) {
    Prefetched item;
    item.image = wanted;
    item.content = Is(digit);
    item.ready = item.fetched = true;
    item.duration = took;
    return {item};
  }
  // Needs both nodes.
  static JobSpec InContainer(const JobName& name) {
    JobSpec spec =
        ProgramSpec(name, {Role(TaskType::kWorker, 2, {2, 0, 0, ""})});
    spec.roles.Edit()[0].container = Container{"x:1", {}};
    return spec;
  }
  // The cluster is full; what comes now waits.
  void Fill() {
    MustSubmit(Wide("full"));
    Run();
    ASSERT_EQ(State("full"), JobState::kRunning);
  }
  void Empty() {
    ASSERT_TRUE(Cancel("full").ok());
    Run();
  }
  void Say(FakeDaemon* daemon, std::vector<Prefetched> items) {
    const Status taken = coordinator_->sessions()->OnPrefetched(
        daemon->session(), std::move(items));
    ASSERT_TRUE(taken.ok()) << taken;
  }
  static std::vector<std::string> Messages(const Job& job, Reason reason) {
    std::vector<std::string> messages;
    for (const Event& event : job.events) {
      if (event.reason == reason) messages.push_back(event.message);
    }
    return messages;
  }
};

TEST_F(PrefetchTest, NodesAreToldAfterTheyRegisterAndWhenTheQueueChanges) {
  ASSERT_TRUE(a_.prefetch());
  EXPECT_THAT(a_.prefetch()->images, IsEmpty());
  EXPECT_EQ(a_.prefetch()->epoch, coordinator_->epoch());
  Fill();
  MustSubmit(InContainer("j"));
  EXPECT_THAT(a_.prefetch()->images, ElementsAre(Any()));
  EXPECT_THAT(b_.prefetch()->images, ElementsAre(Any()));
  // Its stream broke.
  Connect(&a_);
  ASSERT_TRUE(a_.prefetch());
  EXPECT_THAT(a_.prefetch()->images, ElementsAre(Any()));
  ASSERT_TRUE(Cancel("j").ok());
  EXPECT_THAT(a_.prefetch()->images, IsEmpty());
}

TEST_F(PrefetchTest, AJobThatDoesNotWaitIsNotFetchedAhead) {
  MustSubmit(InContainer("j"));
  EXPECT_THAT(a_.prefetch()->images, IsEmpty());
  Run();
  EXPECT_THAT(a_.prefetch()->images, IsEmpty());
}

TEST_F(PrefetchTest, TheFirstSettlesItAndTheOthersFetchThat) {
  Fill();
  MustSubmit(InContainer("j"));
  Say(&a_, Got(Any(), 'a'));
  EXPECT_THAT(Get("j").images, ElementsAre(Is('a', "a")));
  EXPECT_THAT(Messages(Get("j"), Reason::kImagePinned),
              ElementsAre("image x:1 prefetched on a in 12.3 s: " + Sha('a')));
  EXPECT_THAT(b_.prefetch()->images, ElementsAre(Is('a', "a")));
  // Of before it was settled: too late.
  Say(&b_, Got(Any(), 'b'));
  EXPECT_THAT(Get("j").images, ElementsAre(Is('a', "a")));
  // The tag was moved meanwhile, on both.
  a_.images["x:1"] = b_.images["x:1"] = Is('c');
  Empty();
  ASSERT_EQ(State("j"), JobState::kRunning);
  for (const FakeDaemon* daemon : {&a_, &b_}) {
    const auto gang = daemon->gangs.find({"j", 1});
    ASSERT_NE(gang, daemon->gangs.end());
    EXPECT_THAT(gang->second.status.images, SizeIs(1));
    EXPECT_EQ(gang->second.status.images[0].id, Sha('a'));
    EXPECT_THAT(daemon->prefetch()->images, IsEmpty());
  }
}

TEST_F(PrefetchTest, WithoutAWaitTheFirstThatIsReadySettlesIt) {
  a_.images["x:1"] = Is('a');
  b_.images["x:1"] = Is('b');
  MustSubmit(InContainer("j"));
  Run();
  ASSERT_EQ(State("j"), JobState::kRunning);
  ASSERT_THAT(Get("j").images, SizeIs(1));
  const std::string id = Get("j").images[0].id;
  for (const FakeDaemon* daemon : {&a_, &b_}) {
    EXPECT_EQ(daemon->gangs.at({"j", 1}).status.images[0].id, id);
  }
}

TEST_F(PrefetchTest, ItIsSettledAcrossAStartOfTheCoordinator) {
  Fill();
  MustSubmit(InContainer("j"));
  Say(&a_, Got(Any(), 'a'));
  Restart();
  Connect(&a_);
  Connect(&b_);
  Run();
  EXPECT_THAT(Get("j").images, ElementsAre(Is('a', "a")));
  EXPECT_THAT(b_.prefetch()->images, ElementsAre(Is('a', "a")));
}

TEST_F(PrefetchTest, ALaterJobOfTheSameNameMayHaveAnotherContent) {
  Fill();
  MustSubmit(InContainer("j"));
  Say(&a_, Got(Any(), 'a'));
  Say(&a_, Got(Is('a', "a"), 'a'));
  MustSubmit(InContainer("k"));
  // Any content of the name is its to have: that may be another by now.
  EXPECT_THAT(a_.prefetch()->images, ElementsAre(Is('a', "a"), Any()));
  auto items = Got(Is('a', "a"), 'a');
  items.push_back(Got(Any(), 'b')[0]);
  Say(&a_, items);
  EXPECT_EQ(Get("k").images[0].id, Sha('b'));
  EXPECT_EQ(Get("j").images[0].id, Sha('a'));
}

TEST_F(PrefetchTest, WhatCannotBeHadIsAnEventOfTheJobThatWaits) {
  Fill();
  MustSubmit(InContainer("j"));
  Prefetched failed;
  failed.image = Any();
  failed.error = "no route to host";
  Say(&a_, {failed});
  Say(&a_, {failed});
  EXPECT_THAT(Messages(Get("j"), Reason::kPrefetchFailed),
              ElementsAre("image x:1 is unavailable on a: no route to host"));
  EXPECT_EQ(State("j"), JobState::kQueued);
}

TEST_F(PrefetchTest, WhatTheStoreCouldNotTakeIsTakenLater) {
  Fill();
  MustSubmit(InContainer("j"));
  store_.FailWith(Unavailable("the disk is full"));
  Say(&a_, Got(Any(), 'a'));
  EXPECT_THAT(Get("j").images, IsEmpty());
  store_.FailWith(OkStatus());
  Run();
  Pass(2s);
  EXPECT_THAT(Get("j").images, SizeIs(1));
}

TEST_F(PrefetchTest, ANodeThatWasNotAskedSettlesNothing) {
  b_.info.container_engine.clear();
  Connect(&b_);
  Fill();
  JobSpec spec = InContainer("j");
  spec.roles.Edit()[0].count = 1;
  MustSubmit(spec);
  EXPECT_THAT(b_.prefetch()->images, IsEmpty());
  Say(&b_, Got(Any(), 'b'));
  EXPECT_THAT(Get("j").images, IsEmpty());
  Say(&a_, Got(Any(), 'a'));
  EXPECT_THAT(Get("j").images, SizeIs(1));
}

TEST_F(PrefetchTest, AStrangersStreamSettlesNothing) {
  EXPECT_FALSE(coordinator_->sessions()->OnPrefetched(4711, {}).ok());
}

}  // namespace
}  // namespace lockstep::server
