#include "worker/package/package_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/base/random.h"
#include "worker/package/package_test_util.h"

namespace lockstep::worker::package {
namespace {

using std::chrono_literals::operator""ms;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class PackageCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.dir = dir_ / "packages";
    options_.backoff = 1ms;
    Open();
  }
  void Open() {
    cache_.reset();
    auto cache = PackageCache::Open(options_, &source_);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }
  StatusOr<PackageCache::Lease> Get(const Package& package) {
    return cache_->Get(package, nullptr, &cancel_);
  }
  std::vector<std::string> Files() {
    return RealFileSystem()->List(options_.dir).value();
  }

  TempDir dir_;
  PackageCacheOptions options_;
  FakePackageSource source_;
  std::unique_ptr<PackageCache> cache_;
  Cancellation cancel_;
};

TEST_F(PackageCacheTest, APackageIsFetchedOnceAndStays) {
  const std::string bytes = RandomBytes(5000);
  const Package package = source_.Put(bytes, "a.tar.gz");
  int64_t seen = 0;
  {
    const auto lease = cache_->Get(
        package, [&](int64_t arrived) { seen = arrived; }, &cancel_);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(RealFileSystem()->Read(lease->path()).value(), bytes);
  }
  EXPECT_EQ(seen, 5000);
  EXPECT_TRUE(Get(package).ok());
  EXPECT_EQ(source_.fetches, 1);
  EXPECT_THAT(Files(), ElementsAre("sha256-" + package.digest.substr(7)));
  EXPECT_EQ(cache_->bytes(), 5000u);
}

TEST_F(PackageCacheTest, ABrokenFetchGoesOnWhereItWas) {
  const std::string bytes = RandomBytes(5500);
  const Package package = source_.Put(bytes, "a.tar.gz");
  source_.break_after = 2000;
  const auto lease = Get(package);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(RealFileSystem()->Read(lease->path()).value(), bytes);
  EXPECT_THAT(source_.offsets(), ElementsAre(0, 2000, 4000));
}

TEST_F(PackageCacheTest, WithoutAByteForLongItFails) {
  const Package package = source_.Put(RandomBytes(5000), "a.tar.gz");
  options_.idle = 30ms;
  Open();
  source_.break_after = 0;
  const auto broken = Get(package);
  EXPECT_EQ(broken.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(broken.status()),
              HasSubstr("received no bytes for 30 ms: the connection broke"));
  source_.break_after = -1;
  source_.hang_after = 1000;
  EXPECT_EQ(Get(package).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(PackageCacheTest, WhatIsNotWhatItShouldBeIsNotKept) {
  const Package package = source_.Put(RandomBytes(3000), "a.tar.gz");
  const auto complaint = [&](const std::string& bytes) {
    source_.Spoil(package, bytes);
    const Status status = Get(package).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(Files(), IsEmpty());
    return Message(status);
  };
  EXPECT_THAT(complaint(std::string(3000, 'x')),
              HasSubstr("instead of " + package.digest));
  EXPECT_EQ(complaint(std::string(2999, 'x')),
            "received only 2999 of 3000 bytes");
  EXPECT_EQ(complaint(std::string(3001, 'x')),
            "received more than its 3000 bytes");
  EXPECT_EQ(Get(PackageOf("unknown", "b")).status().code(),
            StatusCode::kNotFound);
  Package evil = package;
  evil.digest = "sha256:../../../../etc/passwd";
  EXPECT_EQ(Get(evil).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(PackageCacheTest, TwoWhoWantOneFetchItOnce) {
  const Package package = source_.Put(RandomBytes(5000), "a.tar.gz");
  source_.hang_after = 2000;
  Cancellation first_cancel;
  Status first;
  StatusOr<PackageCache::Lease> second = Unavailable("not yet");
  std::thread one(
      [&] { first = cache_->Get(package, nullptr, &first_cancel).status(); });
  ASSERT_TRUE(Eventually([&] { return source_.hanging == 1; }));
  std::atomic<int> looked{0};
  std::thread two([&] {
    second = cache_->Get(
        package, [&](int64_t) { ++looked; }, &cancel_);
  });
  ASSERT_TRUE(Eventually([&] { return looked > 0; }));
  EXPECT_EQ(source_.fetches, 1);
  // The first is told to stop: the second fetches it, then.
  source_.hang_after = -1;
  first_cancel.Cancel();
  one.join();
  two.join();
  EXPECT_EQ(first.code(), StatusCode::kCancelled);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(source_.fetches, 2);
  EXPECT_THAT(Files(), SizeIs(1));
}

TEST_F(PackageCacheTest, ACancelledFetchLeavesNothing) {
  const Package package = source_.Put(RandomBytes(5000), "a.tar.gz");
  source_.hang_after = 2000;
  Status status;
  std::thread thread([&] { status = Get(package).status(); });
  ASSERT_TRUE(Eventually([&] { return source_.hanging == 1; }));
  cancel_.Cancel();
  thread.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_EQ(cache_->bytes(), 0u);
}

TEST_F(PackageCacheTest, WhoStopsWhileAnOldFileIsCheckedLeavesIt) {
  const Package package = source_.Put(RandomBytes(5000), "a.tar.gz");
  ASSERT_TRUE(Get(package).ok());
  Open();
  EXPECT_EQ(cache_->bytes(), 5000u);
  cancel_.Cancel();
  EXPECT_EQ(Get(package).status().code(), StatusCode::kCancelled);
  EXPECT_THAT(Files(), SizeIs(1));
  EXPECT_EQ(cache_->bytes(), 5000u);
  Cancellation fresh;
  EXPECT_TRUE(cache_->Get(package, nullptr, &fresh).ok());
  EXPECT_EQ(source_.fetches, 1);
}

TEST_F(PackageCacheTest, ASizeThatIsNotTheFilesIsRefused) {
  const Package package = source_.Put(RandomBytes(5000), "a.tar.gz");
  Package liar = package;
  liar.bytes = 1;
  ASSERT_TRUE(Get(package).ok());
  for (int i = 0; i < 3; ++i) {
    const Status status = Get(liar).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(Message(status),
              "package " + package.digest + " has 5000 bytes, not 1");
    EXPECT_EQ(cache_->bytes(), 5000u);
    EXPECT_TRUE(Get(package).ok());
    // From now on of a daemon that has only found it.
    if (i < 2) Open();
  }
  EXPECT_EQ(source_.fetches, 1);
}

TEST_F(PackageCacheTest, BeyondItsLimitTheLeastRecentlyUsedGoes) {
  options_.limit_bytes = 2500;
  Open();
  const Package a = source_.Put(std::string(1000, 'a'), "a");
  const Package b = source_.Put(std::string(1000, 'b'), "b");
  const Package c = source_.Put(std::string(1000, 'c'), "c");
  ASSERT_TRUE(Get(a).ok());
  ASSERT_TRUE(Get(b).ok());
  ASSERT_TRUE(Get(a).ok());
  ASSERT_TRUE(Get(c).ok());
  EXPECT_EQ(cache_->bytes(), 2000u);
  EXPECT_THAT(Files(), SizeIs(2));
  EXPECT_TRUE(Get(a).ok());
  EXPECT_EQ(source_.fetches, 3);  // b is the one that went.
  // What is held is never swept.
  auto lease_a = Get(a);
  auto lease_b = Get(b);
  auto lease_c = Get(c);
  EXPECT_EQ(cache_->bytes(), 3000u);
  EXPECT_TRUE(RealFileSystem()->Exists(lease_a->path()));
  lease_a = Unavailable("released");
  EXPECT_EQ(cache_->bytes(), 2000u);
}

TEST_F(PackageCacheTest, TheNextDaemonChecksWhatItFinds) {
  const std::string bytes = RandomBytes(3000);
  const Package package = source_.Put(bytes, "a");
  std::string path;
  {
    const auto lease = Get(package);
    ASSERT_TRUE(lease.ok());
    path = lease->path();
  }
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path + ".part", "broken off").ok());
  Open();
  EXPECT_THAT(Files(), SizeIs(1));
  EXPECT_TRUE(Get(package).ok());
  EXPECT_EQ(source_.fetches, 1);
  // Torn by a power cut.
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, std::string(3000, 0)).ok());
  Open();
  const auto again = Get(package);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(source_.fetches, 2);
  EXPECT_EQ(RealFileSystem()->Read(path).value(), bytes);
}

}  // namespace
}  // namespace lockstep::worker::package
