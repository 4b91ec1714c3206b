#include "server/packages/package_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "common/base/fault_point.h"
#include "server/packages/package_sweeper.h"
#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""min;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Package Of(const std::string& bytes) {
  std::string hex;
  for (const char c : Sha256(bytes)) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return {"sha256:" + hex, static_cast<int64_t>(bytes.size()),
          PackageFormat::kTree, "trainer.tar.gz"};
}

class PackageStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-packages-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    options_.dir = JoinPath(dir_, "packages");
    Open();
  }
  void TearDown() override {
    store_.reset();
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Open() {
    store_.reset();
    auto store = PackageStore::Open(RealFileSystem(), options_, &clock_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  Status Put(const std::string& bytes, const std::string& owner = "user/ann") {
    auto upload = store_->Begin({owner}, Of(bytes));
    if (!upload.ok()) return upload.status();
    if (*upload == nullptr) return AlreadyExists("there");
    LOCKSTEP_RETURN_IF_ERROR((*upload)->Append(bytes.substr(0, 3)));
    LOCKSTEP_RETURN_IF_ERROR((*upload)->Append(bytes.substr(3)));
    return (*upload)->Finish();
  }
  bool Keep(const Package& package, const std::string& owner = "user/ann") {
    return store_->Keep({owner}, package);
  }
  std::vector<std::string> Incoming() {
    return *RealFileSystem()->List(JoinPath(options_.dir, "incoming"));
  }
  std::string Get(const std::string& digest) {
    auto content = store_->Read(digest);
    if (!content.ok()) return Message(content.status());
    std::string bytes(content->bytes, '\0');
    EXPECT_EQ(content->file->ReadAt(0, bytes.data(), bytes.size()).value_or(0),
              bytes.size());
    return bytes;
  }

  FakeClock clock_;
  std::string dir_;
  PackageStoreOptions options_;
  std::unique_ptr<PackageStore> store_;
};

TEST_F(PackageStoreTest, OneCopyOfEachContentThatSurvivesARestart) {
  ASSERT_TRUE(Put("hello").ok());
  EXPECT_EQ(Put("hello").code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(Put("world!").ok());
  EXPECT_EQ(Get(Of("hello").digest), "hello");
  Open();
  EXPECT_EQ(Get(Of("world!").digest), "world!");
  EXPECT_TRUE(Keep(Of("hello")));
  EXPECT_EQ(store_->Stats().packages, 2u);
  EXPECT_EQ(store_->Stats().bytes, 11u);
  EXPECT_THAT(Get(Of("else").digest), HasSubstr("there is no package sha256:"));
  Package other = Of("hello");
  other.bytes = 6;
  EXPECT_FALSE(Keep(other));
  EXPECT_EQ(store_->Begin({"user/ann"}, other).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(PackageStoreTest, WhatIsNotWhatItSaysIsRefusedAndLeavesNothing) {
  const struct {
    std::string announced, sent, want;
  } cases[] = {
      {"hello", "hellx", "has the digest sha256:"},
      {"hello", "hell", "ended after 4 of the declared 5 bytes"},
      {"hello", "hello!", "has more than the declared 5 bytes"},
  };
  for (const auto& c : cases) {
    {
      auto upload = store_->Begin({"user/ann"}, Of(c.announced));
      ASSERT_TRUE(upload.ok());
      Status status = (*upload)->Append(c.sent);
      if (status.ok()) status = (*upload)->Finish();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(Message(status), HasSubstr(c.want));
    }
    EXPECT_THAT(Incoming(), IsEmpty());
    EXPECT_FALSE(Keep(Of(c.announced)));
  }
  EXPECT_EQ(store_->Stats().failed, 3u);
  EXPECT_TRUE(Put("hello").ok());
}

TEST_F(PackageStoreTest, ABrokenOffUploadLeavesNothingEvenAfterACrash) {
  {
    auto upload = store_->Begin({"user/ann"}, Of("hello"));
    ASSERT_TRUE(upload.ok());
    ASSERT_TRUE((*upload)->Append("he").ok());
    EXPECT_EQ(Incoming().size(), 1u);
  }
  EXPECT_THAT(Incoming(), IsEmpty());
  // As a crash leaves it: half a file, and the owner of what never came.
  const std::string hex = Of("hello").digest.substr(7);
  const std::string dir = JoinPath(options_.dir, "sha256/" + hex.substr(0, 2));
  ASSERT_TRUE(RealFileSystem()->MakeDirs(dir).ok());
  ASSERT_TRUE(RealFileSystem()
                  ->WriteAtomic(JoinPath(options_.dir, "incoming/7"), "he")
                  .ok());
  ASSERT_TRUE(RealFileSystem()
                  ->WriteAtomic(JoinPath(dir, hex + ".owner"), "user/ann")
                  .ok());
  Open();
  EXPECT_THAT(Incoming(), IsEmpty());
  EXPECT_THAT(*RealFileSystem()->List(dir), IsEmpty());
  EXPECT_EQ(store_->Stats().packages, 0u);
  EXPECT_TRUE(Put("hello").ok());
}

TEST_F(PackageStoreTest, ADiskThatFailsIsSaidAndLeavesNothing) {
  ASSERT_TRUE(EnableFaults("package_publish=error@1").ok());
  EXPECT_FALSE(Put("hello").ok());
  EXPECT_THAT(Incoming(), IsEmpty());
  EXPECT_FALSE(Keep(Of("hello")));
  EXPECT_TRUE(Put("hello").ok());
}

TEST_F(PackageStoreTest, LimitsOfAPackageAndOfAUser) {
  options_.max_bytes = 100'000;
  options_.max_owner_bytes = 150'000;
  Open();
  Status status = Put(std::string(100'001, 'a'));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status),
              HasSubstr("has 100001 bytes; at most 100000 bytes"));
  ASSERT_TRUE(Put(std::string(80'000, 'b')).ok());
  status = Put(std::string(70'001, 'c'));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "PACKAGE_QUOTA");
  EXPECT_THAT(Message(status), HasSubstr("user/ann has 80000 bytes"));
  EXPECT_EQ(store_->Stats().refused, 2u);
  // Others have their own; a quota survives a restart.
  EXPECT_TRUE(Put(std::string(70'001, 'c'), "user/bob").ok());
  Open();
  EXPECT_EQ(Put(std::string(70'001, 'd')).code(),
            StatusCode::kResourceExhausted);
  // What is being uploaded counts, and counts no more when it broke off.
  {
    auto upload = store_->Begin({"user/ann"}, Of("xyzuv"));
    ASSERT_TRUE(upload.ok());
    EXPECT_EQ(Put("abcdef").code(), StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(Put("abcdef").ok());
}

// Else a million of them would be nearly free.
TEST_F(PackageStoreTest, TinyPackagesCountToo) {
  options_.max_owner_bytes = 2 * kMinPackageCharge;
  Open();
  EXPECT_TRUE(Put("one!").ok());
  EXPECT_TRUE(Put("two!").ok());
  EXPECT_EQ(ReasonOf(Put("three")), "PACKAGE_QUOTA");
  EXPECT_EQ(store_->Stats().bytes, 8u);
}

// A digest is seen by everybody who may see the job.
TEST_F(PackageStoreTest, ADigestAloneIsNotEnoughForOthers) {
  options_.max_owner_bytes = kMinPackageCharge;
  Open();
  const PackageUser admin = {"user/root", true};
  ASSERT_TRUE(Put("hello").ok());
  EXPECT_FALSE(Keep(Of("hello"), "user/bob"));
  EXPECT_TRUE(store_->Keep(admin, Of("hello")));
  EXPECT_EQ(*store_->Begin(admin, Of("hello")), nullptr);
  // Who guesses learns nothing of it, not even its size.
  Package wrong = Of("hello");
  wrong.bytes = 6;
  {
    auto upload = store_->Begin({"user/bob"}, wrong);
    ASSERT_TRUE(upload.ok()) << upload.status();
    EXPECT_NE(*upload, nullptr);
  }
  // Who has the bytes becomes an owner, and is charged.
  ASSERT_TRUE(Put("hello", "user/bob").ok());
  EXPECT_TRUE(Keep(Of("hello"), "user/bob"));
  EXPECT_TRUE(Keep(Of("hello"), "user/ann"));
  EXPECT_EQ(store_->Stats().packages, 1u);
  EXPECT_THAT(Incoming(), IsEmpty());
  EXPECT_EQ(ReasonOf(Put("other", "user/bob")), "PACKAGE_QUOTA");
  Open();
  EXPECT_TRUE(Keep(Of("hello"), "user/bob"));
  EXPECT_TRUE(Keep(Of("hello"), "user/ann"));
  EXPECT_FALSE(Keep(Of("hello"), "user/eve"));
  EXPECT_EQ(ReasonOf(Put("other", "user/bob")), "PACKAGE_QUOTA");
  clock_.Advance(61min);
  store_->Remove(Of("hello").digest, clock_.Now().wall);
  EXPECT_TRUE(Put("other", "user/bob").ok());
  EXPECT_TRUE(Put("third", "user/ann").ok());
}

TEST_F(PackageStoreTest, TheDiskIsNeverFilled) {
  uint64_t free = 1'000'009;
  options_.reserve_bytes = 1'000'000;
  options_.free_bytes = [&] { return free; };
  Open();
  const Status full = Put("0123456789");
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(full), "PACKAGE_DISK_FULL");
  EXPECT_THAT(Message(full), HasSubstr("disk has 1000009 bytes"));
  free = 1'000'018;
  {
    // What is announced is as good as written.
    auto upload = store_->Begin({"user/ann"}, Of("0123456789"));
    ASSERT_TRUE(upload.ok()) << upload.status();
    EXPECT_EQ(ReasonOf(Put("abcdefghi")), "PACKAGE_DISK_FULL");
    ASSERT_TRUE((*upload)->Append("012").ok());
    free -= 3;
    EXPECT_EQ(ReasonOf(Put("abcdefghi")), "PACKAGE_DISK_FULL");
    EXPECT_TRUE(Put("abcdefgh").ok());
  }
  EXPECT_EQ(store_->Stats().refused, 3u);
  EXPECT_TRUE(Put("abcdefghijklmn").ok());
  // Somebody else fills it while an upload goes on.
  const std::string large(65 << 20, 'x');
  free = uint64_t{1} << 40;
  auto upload = store_->Begin({"user/ann"}, Of(large));
  ASSERT_TRUE(upload.ok()) << upload.status();
  free = 1'000'000;
  Status status;
  for (size_t at = 0; at < large.size() && status.ok(); at += 1 << 20) {
    status = (*upload)->Append(std::string_view(large).substr(at, 1 << 20));
  }
  EXPECT_EQ(ReasonOf(status), "PACKAGE_DISK_FULL");
}

TEST_F(PackageStoreTest, AShortQuotaIsMadeRoomInAtOnce) {
  options_.max_owner_bytes = 3 * kMinPackageCharge;
  options_.needed = [] { return std::set<std::string>{Of("needed").digest}; };
  Open();
  ASSERT_TRUE(Put("needed").ok());
  ASSERT_TRUE(Put("shared").ok());
  ASSERT_TRUE(Put("shared", "user/bob").ok());
  clock_.Advance(6min);
  ASSERT_TRUE(Put("of a job that comes now").ok());
  ASSERT_TRUE(Put("one more").ok());
  EXPECT_TRUE(Keep(Of("needed")));
  EXPECT_FALSE(Keep(Of("shared")));
  EXPECT_TRUE(Keep(Of("shared"), "user/bob"));
  EXPECT_TRUE(Keep(Of("of a job that comes now")));
  EXPECT_EQ(ReasonOf(Put("too much")), "PACKAGE_QUOTA");
  clock_.Advance(6min);
  EXPECT_TRUE(Put("too much").ok());
  EXPECT_FALSE(Keep(Of("one more")));
  EXPECT_EQ(store_->Stats().packages, 3u);
}

// The client asked, was told that it is there, and submits now.
TEST_F(PackageStoreTest, ARestartKeepsWhatWasAskedForLately) {
  ASSERT_TRUE(Put("hello").ok());
  const std::string hex = Of("hello").digest.substr(7);
  const std::string path =
      fmt::format("{}/sha256/{}/{}", options_.dir, hex.substr(0, 2), hex);
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), old, 0), 0);
  EXPECT_EQ(Put("hello").code(), StatusCode::kAlreadyExists);
  Open();
  PackageSweeperOptions sweep;
  sweep.needed = [] { return std::set<std::string>(); };
  EXPECT_EQ(SweepPackages(sweep, store_.get(), clock_.Now().wall), 0u);
  EXPECT_TRUE(Keep(Of("hello")));
}

TEST_F(PackageStoreTest, StrangersFilesAreLeftAlone) {
  ASSERT_TRUE(Put("hello").ok());
  FileSystem* const files = RealFileSystem();
  const std::string root = JoinPath(options_.dir, "sha256");
  const std::string hex = Of("hello").digest.substr(7);
  const std::string dir = JoinPath(root, hex.substr(0, 2));
  const std::string temporary = JoinPath(dir, hex + ".owner.tmp");
  const std::vector<std::string> strange = {
      JoinPath(root, ".DS_Store"), JoinPath(root, "zz"), JoinPath(root, "00"),
      JoinPath(dir, "README")};
  for (const std::string& path : strange) {
    ASSERT_TRUE(files->WriteAtomic(path, "x").ok());
  }
  ASSERT_TRUE(files->WriteAtomic(temporary, "x").ok());
  ASSERT_TRUE(files->MakeDirs(JoinPath(dir, std::string(64, 'a'))).ok());
  Open();
  ASSERT_NE(store_, nullptr);
  EXPECT_EQ(store_->Stats().packages, 1u);
  EXPECT_TRUE(Keep(Of("hello")));
  for (const std::string& path : strange) EXPECT_TRUE(files->Exists(path));
  EXPECT_FALSE(files->Exists(temporary));
}

TEST_F(PackageStoreTest, TwoMayBringTheSameAtOnce) {
  auto one = store_->Begin({"user/ann"}, Of("hello"));
  auto two = store_->Begin({"user/bob"}, Of("hello"));
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_TRUE((*one)->Append("hello").ok());
  ASSERT_TRUE((*two)->Append("hello").ok());
  EXPECT_TRUE((*two)->Finish().ok());
  EXPECT_TRUE((*one)->Finish().ok());
  EXPECT_THAT(Incoming(), IsEmpty());
  EXPECT_EQ(store_->Stats().bytes, 5u);
  EXPECT_EQ(Get(Of("hello").digest), "hello");
  EXPECT_TRUE(Keep(Of("hello"), "user/ann"));
  EXPECT_TRUE(Keep(Of("hello"), "user/bob"));
}

TEST_F(PackageStoreTest, WhatNoJobNeedsGoesAfterAWhile) {
  options_.max_owner_bytes = 2 * kMinPackageCharge;
  Open();
  ASSERT_TRUE(Put("needed").ok());
  ASSERT_TRUE(Put("free").ok());
  PackageSweeperOptions sweep;
  sweep.needed = [] { return std::set<std::string>{Of("needed").digest}; };
  clock_.Advance(59min);
  EXPECT_EQ(SweepPackages(sweep, store_.get(), clock_.Now().wall), 0u);
  // A job that comes in this moment asks for it.
  clock_.Advance(2min);
  sweep.needed = [&] {
    EXPECT_TRUE(Keep(Of("free")));
    return std::set<std::string>{Of("needed").digest};
  };
  EXPECT_EQ(SweepPackages(sweep, store_.get(), clock_.Now().wall), 0u);
  clock_.Advance(61min);
  sweep.needed = [] { return std::set<std::string>{Of("needed").digest}; };
  auto open = store_->Read(Of("free").digest);
  EXPECT_EQ(SweepPackages(sweep, store_.get(), clock_.Now().wall), 1u);
  EXPECT_FALSE(Keep(Of("free")));
  EXPECT_TRUE(Keep(Of("needed")));
  EXPECT_EQ(store_->Stats().bytes, 6u);
  // Who reads it still can, and its owner has the room again.
  char buffer[4];
  EXPECT_EQ(open->file->ReadAt(0, buffer, 4).value_or(0), 4u);
  EXPECT_TRUE(Put("sixxx!").ok());
  // Gone from the disk, too.
  Open();
  EXPECT_EQ(store_->Stats().packages, 2u);
}

TEST_F(PackageStoreTest, TheSweeperLooksAtOnceAndEndsAtOnce) {
  ASSERT_TRUE(Put("free").ok());
  clock_.Advance(61min);
  Mutex mu;
  CondVar asked;
  bool done = false;
  PackageSweeperOptions sweep;
  sweep.needed = [&] {
    MutexLock lock(&mu);
    done = true;
    asked.NotifyAll();
    return std::set<std::string>();
  };
  PackageSweeper sweeper(sweep, store_.get(), &clock_);
  MutexLock lock(&mu);
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  while (!done) ASSERT_TRUE(asked.WaitUntil(&mu, deadline));
}

}  // namespace
}  // namespace lockstep::server
