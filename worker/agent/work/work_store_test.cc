#include "worker/agent/work/work_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class WorkStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-work-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    store_.emplace(files_, dir_);
    ASSERT_TRUE(store_->Init().ok());
  }
  void TearDown() override { EXPECT_TRUE(files_->RemoveAll(dir_).ok()); }

  std::string Make(const std::string& uid, int32_t index = 0) {
    const auto path =
        store_->Make(uid, TaskType::kWorker, index, geteuid(), getegid());
    EXPECT_TRUE(path.ok()) << path.status();
    return path.value_or("");
  }
  void Fill(const std::string& path) {
    ASSERT_TRUE(files_->WriteAtomic(JoinPath(path, "snapshot.pt"), "x").ok());
  }
  // Sets when the directory was used last.
  void Age(const std::string& uid, int64_t seconds) {
    const timespec times[2] = {{time(nullptr) - seconds, 0},
                               {time(nullptr) - seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/work/" + uid).c_str(), times, 0),
              0);
  }

  FileSystem* const files_ = RealFileSystem();
  std::string dir_;
  std::optional<WorkStore> store_;
};

TEST_F(WorkStoreTest, ATaskHasOneDirectoryInAllGenerations) {
  const std::string path = Make("uid-1", 3);
  EXPECT_EQ(path, dir_ + "/work/uid-1/worker-3");
  Fill(path);
  EXPECT_EQ(Make("uid-1", 3), path);
  EXPECT_TRUE(files_->Exists(path + "/snapshot.pt"));
  EXPECT_THAT(store_->jobs(), ElementsAre("uid-1"));
  struct stat info {};
  ASSERT_EQ(stat((dir_ + "/work").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0711u) << "others may not list the jobs";
}

TEST_F(WorkStoreTest, WhatIsNoUidNamesNoDirectory) {
  for (const std::string uid : {"", "..", "a/b", ".gone-1", "a b"}) {
    EXPECT_EQ(store_->PathOf(uid, TaskType::kChief, 0).status().code(),
              StatusCode::kInvalidArgument)
        << uid;
    EXPECT_FALSE(store_->Make(uid, TaskType::kChief, 0, 0, 0).ok()) << uid;
    EXPECT_FALSE(store_->SetAside(uid).ok()) << uid;
  }
}

TEST_F(WorkStoreTest, TheNextDaemonFindsThem) {
  Fill(Make("b"));
  Fill(Make("a"));
  const auto aside = store_->SetAside("b");
  ASSERT_TRUE(aside.ok()) << aside.status();
  WorkStore next(files_, dir_);
  EXPECT_THAT(next.Init().value(), ElementsAre(*aside));
  EXPECT_THAT(next.jobs(), ElementsAre("a"));
}

TEST_F(WorkStoreTest, OnlyEmptyOnesGoWithTheEnd) {
  Fill(Make("full", 0));
  Make("full", 1);
  Make("empty");
  store_->Settle("full");
  store_->Settle("empty");
  store_->Settle("unknown");
  EXPECT_THAT(store_->jobs(), ElementsAre("full"));
  EXPECT_THAT(files_->List(dir_ + "/work").value(), ElementsAre("full"));
  EXPECT_THAT(files_->List(dir_ + "/work/full").value(),
              ElementsAre("worker-0"));
}

TEST_F(WorkStoreTest, TheOldestThatIsNotBusyIsFound) {
  for (const std::string uid : {"a", "b", "c"}) Fill(Make(uid));
  Age("a", 300'000);
  Age("b", 200'000);
  Age("c", 100'000);
  const WallTime now = SystemClock().Now().wall;
  EXPECT_EQ(store_->Oldest({}, now), "a");
  EXPECT_EQ(store_->Oldest({"a"}, now), "b");
  EXPECT_EQ(store_->Oldest({"a", "b", "c"}, now), std::nullopt);
  // Used again: its job may wait for its next attempt.
  Make("a");
  EXPECT_EQ(store_->Oldest({}, now), "b");
  EXPECT_EQ(store_->Oldest({"b", "c"}, now), std::nullopt);
}

TEST_F(WorkStoreTest, SetAsideItsNameIsFreeAtOnce) {
  Fill(Make("a"));
  const auto aside = store_->SetAside("a");
  ASSERT_TRUE(aside.ok());
  EXPECT_TRUE(files_->Exists(*aside + "/worker-0/snapshot.pt"));
  EXPECT_THAT(store_->jobs(), IsEmpty());
  EXPECT_EQ(store_->SetAside("a").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(files_->List(Make("a")).value(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::agent
