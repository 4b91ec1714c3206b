#include "server/coordinator/watch_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <semaphore>
#include <thread>

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::IsEmpty;
using testing::SizeIs;

// The changes of `job` after `version` that the hub keeps.
int64_t CountSince(WatchHub* hub, const JobName& job, int64_t version) {
  return WatchHub::Watch(hub, job, version, [] {}).Behind();
}

// What a watcher takes that has seen `version`.
StatusOr<WatchHub::News> Since(WatchHub* hub, const JobName& job,
                               int64_t version) {
  return WatchHub::Watch(hub, job, version, [] {}).Take();
}

class WatchHubTest : public testing::Test {
 protected:
  WatchHubTest() { hub_.Start(10); }
  void Publish(int64_t version, const std::vector<JobName>& names) {
    std::vector<std::shared_ptr<const Job>> jobs;
    for (const JobName& name : names) {
      auto job = std::make_shared<Job>();
      job->spec.name = name;
      job->resource_version = version;
      jobs.push_back(std::move(job));
    }
    hub_.Publish(version, jobs);
  }
  WatchHub hub_{4};
};

TEST_F(WatchHubTest, ChangesAfterAVersionInOrder) {
  Publish(11, {"a"});
  Publish(12, {"b", "a"});
  const auto news = Since(&hub_, "", 10);
  ASSERT_TRUE(news.ok());
  ASSERT_THAT(news->changes, SizeIs(3));
  EXPECT_EQ(news->changes[0].version, 11);
  EXPECT_EQ(news->changes[2].job->spec.name, "a");
  EXPECT_EQ(news->version, 12);
  EXPECT_THAT(Since(&hub_, "", 11)->changes, SizeIs(2));
  EXPECT_THAT(Since(&hub_, "a", 11)->changes, SizeIs(1));
  EXPECT_THAT(Since(&hub_, "", 12)->changes, IsEmpty());
}

TEST_F(WatchHubTest, ALargeJobThatChangesAllDayIsNotKeptAllDay) {
  WatchHub hub(8192, 4 << 20);
  hub.Start(0);
  for (int64_t version = 1; version <= 3000; ++version) {
    auto job = std::make_shared<Job>();
    job->spec.name = "large";
    job->spec.environment.Edit()["X"] = std::string(256 << 10, 'x');
    hub.Publish(version, {std::move(job)});
  }
  const int64_t kept = CountSince(&hub, "", 0);
  EXPECT_GE(kept, 14);
  EXPECT_LE(kept, 16) << "4 MiB of 256 KiB each";
  EXPECT_EQ(Since(&hub, "", 100).status().code(), StatusCode::kOutOfRange);
  // One that is larger than all that may be kept still comes.
  auto job = std::make_shared<Job>();
  job->spec.name = "huge";
  job->spec.comment = std::string(8 << 20, 'x');
  hub.Publish(3001, {std::move(job)});
  EXPECT_EQ(CountSince(&hub, "huge", 3000), 1);
}

// What its versions share is there once, and counted once.
TEST_F(WatchHubTest, ALargeSpecDoesNotPushTheHistoryOut) {
  WatchHub hub(8192, 4 << 20);
  hub.Start(0);
  Job large;
  large.spec.name = "large";
  large.spec.environment.Edit()["X"] = std::string(512 << 10, 'x');
  large.training.Edit().emplace().training_input.args = {
      std::string(512 << 10, 'y')};
  for (int64_t version = 1; version <= 1000; ++version) {
    large.spec.labels["n"] = std::to_string(version);
    hub.Publish(version, {std::make_shared<const Job>(large)});
  }
  EXPECT_EQ(CountSince(&hub, "large", 0), 1000);
  const auto news = Since(&hub, "large", 0);
  ASSERT_TRUE(news.ok()) << Message(news.status());
  EXPECT_EQ(news->changes.front().job->spec.environment.identity(),
            news->changes.back().job->spec.environment.identity());
  // What is not shared takes its place, and gives it back when it goes.
  for (int64_t version = 1001; version <= 1100; ++version) {
    Job other;
    other.spec.name = "other";
    other.spec.environment.Edit()["X"] = std::string(1 << 20, 'x');
    hub.Publish(version, {std::make_shared<const Job>(other)});
  }
  EXPECT_EQ(CountSince(&hub, "large", 0), 0);
  EXPECT_EQ(CountSince(&hub, "other", 0), 3) << "4 MiB of 1 MiB and a bit each";
}

TEST_F(WatchHubTest, TooOldIsSaid) {
  EXPECT_EQ(Since(&hub_, "", 9).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(ReasonOf(Since(&hub_, "", -1).status()), "VERSION_TOO_OLD");
  for (int64_t version = 11; version <= 15; ++version) Publish(version, {"a"});
  EXPECT_FALSE(Since(&hub_, "", 10).ok()) << "one is no longer kept";
  EXPECT_THAT(Since(&hub_, "", 11)->changes, SizeIs(4));
}

TEST_F(WatchHubTest, LargeCommitThatIsNotKeptWholeIsNotGivenInPart) {
  Publish(11, {"a", "b", "c", "d", "e"});
  EXPECT_FALSE(Since(&hub_, "", 10).ok());
  EXPECT_TRUE(Since(&hub_, "", 11).ok());
}

TEST_F(WatchHubTest, WhatIsOfOthersGivesNothing) {
  Publish(11, {"a"});
  const auto news = Since(&hub_, "b", 10);
  ASSERT_TRUE(news.ok());
  EXPECT_THAT(news->changes, IsEmpty());
  EXPECT_EQ(news->version, 11) << "what is not ours is not looked at again";
}

TEST_F(WatchHubTest, WatcherAheadOfTheHubStaysThere) {
  // A commit of a node alone is not published.
  const auto news = Since(&hub_, "", 15);
  ASSERT_TRUE(news.ok());
  EXPECT_EQ(news->version, 15);
  Publish(16, {"a"});
  EXPECT_THAT(Since(&hub_, "", 15)->changes, SizeIs(1));
}

TEST_F(WatchHubTest, ProgressIsTheNewestOnly) {
  JobProgressInfo info;
  for (int i = 1; i <= 3; ++i) {
    info.steps_per_second = i;
    hub_.PublishProgress({{"a", info}, {"c", info}});
  }
  WatchHub::Watch watch(&hub_, "a", 10, [] {});
  const auto news = watch.Take();
  ASSERT_TRUE(news.ok());
  ASSERT_THAT(news->progress, SizeIs(1));
  EXPECT_EQ(news->progress.at("a").steps_per_second, 3);
  EXPECT_THAT(watch.Take()->progress, IsEmpty());
  EXPECT_THAT(Since(&hub_, "b", 10)->progress, IsEmpty());
  hub_.ForgetProgress("a");
  EXPECT_THAT(Since(&hub_, "a", 10)->progress, IsEmpty());
}

TEST_F(WatchHubTest, AWatchIsToldOnceOfItsOwnJobAfterItHasTakenAll) {
  int told = 0;
  WatchHub::Watch watch(&hub_, "a", 10, [&] { ++told; });
  Publish(11, {"a"});
  EXPECT_EQ(told, 0) << "it has not looked yet";
  EXPECT_EQ(watch.Behind(), 1);
  EXPECT_THAT(watch.Take()->changes, SizeIs(1));
  Publish(12, {"a"});
  EXPECT_EQ(told, 0) << "it found something: it looks again by itself";
  EXPECT_THAT(watch.Take()->changes, SizeIs(1));
  EXPECT_THAT(watch.Take()->changes, IsEmpty());
  Publish(13, {"b"});
  hub_.PublishProgress({{"b", {}}});
  EXPECT_EQ(told, 0) << "of another";
  Publish(14, {"a"});
  Publish(15, {"a"});
  EXPECT_EQ(told, 1) << "once";
  EXPECT_EQ(watch.Behind(), 2);
  const auto news = watch.Take();
  ASSERT_THAT(news->changes, SizeIs(2));
  EXPECT_EQ(news->changes[0].version, 14);
  EXPECT_THAT(watch.Take()->changes, IsEmpty());
  hub_.PublishProgress({{"a", {}}});
  EXPECT_EQ(told, 2);
  EXPECT_THAT(watch.Take()->progress, SizeIs(1));
}

TEST_F(WatchHubTest, AWatchThatWaitsDoesNotFallBehind) {
  int told = 0;
  WatchHub::Watch waits(&hub_, "a", 10, [&] { ++told; });
  EXPECT_THAT(waits.Take()->changes, IsEmpty());
  WatchHub::Watch slow(&hub_, "", 10, [] {});
  // More than are kept.
  for (int64_t version = 11; version <= 20; ++version) Publish(version, {"b"});
  EXPECT_EQ(waits.version(), 20);
  EXPECT_EQ(waits.Behind(), 0);
  EXPECT_EQ(ReasonOf(slow.Take().status()), "VERSION_TOO_OLD");
  Publish(21, {"a"});
  EXPECT_EQ(told, 1);
  const auto news = waits.Take();
  ASSERT_TRUE(news.ok()) << Message(news.status());
  ASSERT_THAT(news->changes, SizeIs(1));
  EXPECT_EQ(news->changes[0].version, 21);
}

TEST_F(WatchHubTest, CloseTellsEveryWatch) {
  int told = 0;
  WatchHub::Watch one(&hub_, "a", 10, [&] { ++told; });
  WatchHub::Watch all(&hub_, "", 10, [&] { ++told; });
  hub_.Close();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(one.Take().status().code(), StatusCode::kUnavailable);
}

// Two that publish and watch at once: each change is seen once, in order.
TEST_F(WatchHubTest, NothingIsMissedInARace) {
  WatchHub hub(100000);
  hub.Start(0);
  constexpr int64_t kChanges = 5000;
  std::thread publisher([&] {
    auto job = std::make_shared<Job>();
    job->spec.name = "a";
    for (int64_t version = 1; version <= kChanges; ++version) {
      hub.Publish(version, {job});
    }
  });
  std::binary_semaphore told(0);
  WatchHub::Watch watch(&hub, "a", 0, [&] { told.release(); });
  int64_t seen = 0;
  while (seen < kChanges) {
    const auto news = watch.Take();
    ASSERT_TRUE(news.ok());
    if (news->changes.empty()) {
      ASSERT_TRUE(told.try_acquire_for(20s)) << "after " << seen;
    }
    for (const WatchHub::Change& change : news->changes) {
      ASSERT_EQ(change.version, ++seen);
    }
  }
  publisher.join();
}

TEST(WatchHubTakeTest, AWatcherTakesAsMuchAsItWantsAndTheHubKeepsTheRest) {
  WatchHub hub;
  hub.Start(10);
  WatchHub::Watch watch(&hub, "", 10, [] {});
  const auto job = [](const JobName& name) {
    auto made = std::make_shared<Job>();
    made->spec.name = name;
    return std::shared_ptr<const Job>(std::move(made));
  };
  hub.Publish(11, {job("a"), job("b")});
  hub.Publish(12, {job("a")});
  hub.PublishProgress({{"a", JobProgressInfo()}});
  auto news = watch.Take(1);
  ASSERT_TRUE(news.ok());
  EXPECT_THAT(news->changes, SizeIs(2)) << "those of one version together";
  EXPECT_EQ(news->version, 11);
  EXPECT_THAT(news->progress, IsEmpty());
  EXPECT_EQ(watch.Behind(), 1);
  news = watch.Take(1);
  ASSERT_TRUE(news.ok());
  EXPECT_THAT(news->changes, SizeIs(1));
  EXPECT_EQ(news->version, 12);
  EXPECT_THAT(news->progress, SizeIs(1));
  EXPECT_THAT(watch.Take(1)->changes, IsEmpty());
}

}  // namespace
}  // namespace lockstep::server
