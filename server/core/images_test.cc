#include "server/core/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/assignments.h"
#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const Time kNow{MonoTime(100s), WallTime(1000s)};

std::string Sha(char digit) { return "sha256:" + std::string(64, digit); }

ImageContent Is(const std::string& image, char digit,
                const NodeName& node = "") {
  return {image, Sha(digit), "", node};
}
ImageContent Any(const std::string& image) { return {image, "", "", ""}; }

Prefetched Got(const ImageContent& wanted, const ImageContent& content,
               Duration took = {}) {
  Prefetched item;
  item.image = wanted;
  item.content = content;
  item.ready = true;
  item.fetched = took != Duration{};
  item.duration = took;
  return item;
}

Prefetched Failed(const ImageContent& wanted, const std::string& error) {
  Prefetched item;
  item.image = wanted;
  item.error = error;
  return item;
}

Package CodePackage(char digit, const std::string& name) {
  return {Sha(digit), 7, PackageFormat::kTree, name};
}

JobSpec InContainer(const JobName& name, const std::string& image,
                    int32_t count = 1, double cpus = 1) {
  JobSpec spec =
      ProgramSpec(name, {Role(TaskType::kWorker, count, {cpus, 0, 0, ""})});
  spec.roles.Edit()[0].container = Container{image, {}};
  return spec;
}

HostCapacity EngineHost(const NodeName& node, double cpus = 4,
                        const std::string& engine = "podman 4") {
  HostCapacity host;
  host.node = node;
  host.ready = true;
  host.capacity = {cpus, int64_t{8} << 30, 0, ""};
  host.container_engine = engine;
  host.pool = "default";
  return host;
}

Job InQueue(JobSpec spec) {
  return NewJob(std::move(spec), "uid", "user/ann", kNow);
}

std::vector<std::string> ReasonsIn(const Job& job, Reason reason) {
  std::vector<std::string> messages;
  for (const Event& event : job.events) {
    if (event.reason == reason) messages.push_back(event.message);
  }
  return messages;
}

// ---- What is settled ----

TEST(ImagesTest, TheFirstNodeThatHasAnImageSettlesIt) {
  Job job = InQueue(InContainer("j", "x:1"));
  SettleImages(&job, {Is("x:1", 'a'), Is("other:1", 'c')}, "a", kNow);
  SettleImages(&job, {Is("x:1", 'b')}, "b", kNow);
  EXPECT_THAT(job.images, ElementsAre(Is("x:1", 'a', "a")));
  EXPECT_THAT(ReasonsIn(job, Reason::kImagePinned),
              ElementsAre("image x:1 is " + Sha('a') + ", as on a"));
}

TEST(ImagesTest, ANodeWithAnotherContentHasNotPrepared) {
  JobSpec spec = InContainer("j", "x:1", 2);
  Scene s(spec);
  s.Put({"a", "b"});
  s.Prepared();
  s.Gang("a").images = {Is("x:1", 'a')};
  s.Gang("b").images = {Is("x:1", 'b')};
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_FALSE(s.job.cluster);
  ASSERT_THAT(s.job.images, SizeIs(1));
  EXPECT_EQ(s.job.images[0].node, "a");
  // Each is told what to run.
  const auto wanted = DesiredAssignments(s.job, s.view, "b", {}, s.now);
  ASSERT_THAT(wanted, SizeIs(1));
  EXPECT_EQ(wanted[0].goal, Goal::kPrepare);
  EXPECT_THAT(wanted[0].spec->images, ElementsAre(Is("x:1", 'a', "a")));
  s.Gang("b").images = {Is("x:1", 'a')};
  s.Settle();
  EXPECT_TRUE(s.job.cluster);
  EXPECT_THAT(DesiredAssignments(s.job, s.view, "b", {}, s.now)[0].spec->images,
              SizeIs(1));
}

TEST(ImagesTest, ADaemonThatDoesNotSayIsBelieved) {
  Scene s(InContainer("j", "x:1", 2));
  s.Put({"a", "b"});
  s.Prepared();
  s.Gang("a").images = {Is("x:1", 'a')};
  s.Settle();
  EXPECT_TRUE(s.job.cluster);
}

TEST(ImagesTest, ItStaysSettledInLaterGenerations) {
  Scene s(InContainer("j", "x:1"));
  s.Put({"a"});
  s.Prepared();
  s.Gang("a").images = {Is("x:1", 'a')};
  s.Settle();
  s.Started();
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kRunning);
  s.Exited(0, Signal(9));
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.generation, 2u);
  EXPECT_THAT(s.job.images, ElementsAre(Is("x:1", 'a', "a")));
  EXPECT_THAT(ReasonsIn(s.job, Reason::kImagePinned), SizeIs(1));
}

TEST(ImagesTest, ANodeThatWaitsForAnotherContentIsLateInTime) {
  Scene s(InContainer("j", "x:1", 2));
  s.Put({"a", "b"});
  s.Prepared();
  s.Gang("a").images = {Is("x:1", 'a')};
  s.Gang("b").images = {Is("x:1", 'b')};
  s.Settle();
  s.Advance(s.timeouts.prepare + 1s);
  s.Settle();
  ASSERT_TRUE(s.job.failing);
  EXPECT_EQ(s.job.failing->reason, Reason::kPrepareTimeout);
}

// ---- What is fetched ahead ----

TEST(ImagesTest, GoesToNodesWhereItCouldRun) {
  JobSpec spec = InContainer("j", "x:1", 1, 3);
  spec.packages = {CodePackage('1', "t.tar.gz")};
  const Job job = InQueue(spec);
  HostCapacity busy = EngineHost("busy");
  busy.allocated = {4, 0, 0, ""};
  HostCapacity away = EngineHost("away");
  away.ready = false;
  HostCapacity pool = EngineHost("pool");
  pool.pool = "gpu";
  const auto lists =
      PrefetchLists({&job},
                    {EngineHost("a"), busy, away, EngineHost("small", 2),
                     EngineHost("none", 4, "")},
                    {});
  ASSERT_THAT(lists, SizeIs(2));
  EXPECT_THAT(lists.at("a").images, ElementsAre(Any("x:1")));
  EXPECT_THAT(lists.at("a").packages, ElementsAre(spec.packages[0]));
  EXPECT_THAT(lists.at("busy").images, ElementsAre(Any("x:1")));
  spec.pool = "gpu";
  const Job pooled = InQueue(spec);
  const auto there = PrefetchLists({&pooled}, {EngineHost("a"), pool}, {});
  ASSERT_THAT(there, SizeIs(1));
  EXPECT_TRUE(there.contains("pool"));
}

TEST(ImagesTest, ARoleThatDoesNotFitBringsNothing) {
  JobSpec spec = ProgramSpec("j", {Role(TaskType::kChief, 1, {1, 0, 0, ""}),
                                   Role(TaskType::kWorker, 1, {8, 0, 0, ""})});
  spec.roles.Edit()[0].container = Container{"chief:1", {}};
  spec.roles.Edit()[1].container = Container{"worker:1", {}};
  const Job job = InQueue(spec);
  const auto lists =
      PrefetchLists({&job}, {EngineHost("a"), EngineHost("big", 8)}, {});
  EXPECT_THAT(lists.at("a").images, ElementsAre(Any("chief:1")));
  EXPECT_THAT(lists.at("big").images,
              ElementsAre(Any("chief:1"), Any("worker:1")));
}

TEST(ImagesTest, IsBoundedInEachDirection) {
  std::vector<Job> jobs;
  for (int i = 0; i < 5; ++i) {
    jobs.push_back(
        InQueue(InContainer(fmt::format("j{}", i), fmt::format("x:{}", i))));
  }
  std::vector<const Job*> queue;
  for (const Job& job : jobs) queue.push_back(&job);
  const std::vector<HostCapacity> hosts = {EngineHost("a"), EngineHost("b"),
                                           EngineHost("c")};
  PrefetchOptions options{4, 2, 3, 1};
  const auto lists = PrefetchLists(queue, hosts, options);
  ASSERT_THAT(lists, SizeIs(2));
  EXPECT_THAT(lists.at("a").images,
              ElementsAre(Any("x:0"), Any("x:1"), Any("x:2")));
  options = {2, 64, 8, 8};
  EXPECT_THAT(PrefetchLists(queue, hosts, options).at("c").images, SizeIs(2));
}

TEST(ImagesTest, GoesFirstWhereItWasBefore) {
  Job job = InQueue(InContainer("j", "x:1"));
  TaskStatus task;
  task.node = "c";
  job.tasks = {task};
  const auto lists =
      PrefetchLists({&job}, {EngineHost("a"), EngineHost("b"), EngineHost("c")},
                    {16, 1, 8, 8});
  ASSERT_THAT(lists, SizeIs(1));
  EXPECT_TRUE(lists.contains("c"));
}

TEST(ImagesTest, WhatIsSettledIsFetchedAsThat) {
  Job job = InQueue(InContainer("j", "x:1"));
  const Job other = InQueue(InContainer("k", "x:1"));
  const Job same = InQueue(InContainer("l", "x:1"));
  SettleImages(&job, {Is("x:1", 'a')}, "a", kNow);
  const auto lists =
      PrefetchLists({&job, &other, &same}, {EngineHost("b")}, {});
  EXPECT_THAT(lists.at("b").images,
              ElementsAre(Is("x:1", 'a', "a"), Any("x:1")));
}

TEST(ImagesTest, AJobOfNothingButCommandsFetchesNothing) {
  const Job job = InQueue(NativeSpec("j", 2));
  EXPECT_FALSE(CanFetchAhead(job.spec));
  EXPECT_THAT(PrefetchLists({&job}, {EngineHost("a")}, {}), IsEmpty());
}

// ---- What came of it ----

TEST(ImagesTest, WhatWasPrefetchedIsOneEventOfTheJob) {
  Job job = InQueue(InContainer("j", "x:1"));
  const std::vector<Prefetched> said = {
      Got(Any("x:1"), Is("x:1", 'a'), 12'300ms)};
  TakePrefetched(&job, said, "a", kNow);
  TakePrefetched(&job, {Got(Any("x:1"), Is("x:1", 'b'), 1s)}, "b", kNow);
  TakePrefetched(&job, said, "a", kNow);
  EXPECT_THAT(job.images, ElementsAre(Is("x:1", 'a', "a")));
  EXPECT_THAT(ReasonsIn(job, Reason::kImagePinned),
              ElementsAre("image x:1 prefetched on a in 12.3 s: " + Sha('a')));
}

TEST(ImagesTest, WhatWasThereAlreadyIsSettledAsThat) {
  Job job = InQueue(InContainer("j", "x:1"));
  TakePrefetched(&job, {Got(Any("x:1"), Is("x:1", 'a'))}, "a", kNow);
  EXPECT_THAT(ReasonsIn(job, Reason::kImagePinned),
              ElementsAre("image x:1 is " + Sha('a') + ", as on a"));
}

TEST(ImagesTest, WhatIsAnotherJobsSettlesNothing) {
  Job job = InQueue(InContainer("j", "x:1"));
  TakePrefetched(&job, {Got(Is("x:1", 'b'), Is("x:1", 'b'), 1s)}, "a", kNow);
  TakePrefetched(&job, {Got(Any("y:1"), Is("y:1", 'b'), 1s)}, "a", kNow);
  TakePrefetched(&job, {Failed(Is("x:1", 'b'), "gone")}, "a", kNow);
  EXPECT_THAT(job.images, IsEmpty());
  EXPECT_THAT(ReasonsIn(job, Reason::kPrefetchFailed), IsEmpty());
}

TEST(ImagesTest, WhatCannotBeHadIsAnEventOnceOfEachNodeAndOfAFew) {
  JobSpec spec = InContainer("j", "x:1");
  spec.packages = {CodePackage('1', "t.tar.gz")};
  Job job = InQueue(spec);
  TakePrefetched(&job, {Failed(Any("x:1"), "no route to host")}, "a", kNow);
  TakePrefetched(&job, {Failed(Any("x:1"), "manifest unknown")}, "a", kNow);
  Prefetched package;
  package.package_digest = Sha('1');
  package.error = "there is no room";
  TakePrefetched(&job, {package}, "b", kNow);
  EXPECT_THAT(ReasonsIn(job, Reason::kPrefetchFailed),
              ElementsAre("image x:1 is unavailable on a: no route to host",
                          "package t.tar.gz is unavailable on b: there is no "
                          "room"));
  for (const char* node : {"c", "d", "e", "f", "g"}) {
    TakePrefetched(&job, {Failed(Any("x:1"), "no route to host")}, node, kNow);
  }
  EXPECT_THAT(ReasonsIn(job, Reason::kPrefetchFailed), SizeIs(5));
}

}  // namespace
}  // namespace lockstep::server
