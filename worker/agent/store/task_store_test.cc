#include "worker/agent/store/task_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class TaskStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-store-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    store_ = std::make_unique<TaskStore>(files_, dir_);
    ASSERT_TRUE(store_->Init().ok());
  }
  void TearDown() override { EXPECT_TRUE(files_->RemoveAll(dir_).ok()); }

  static StoredGang Gang(const std::string& job, Generation generation) {
    StoredGang gang;
    gang.assignment.job = job;
    gang.assignment.job_uid = "uid";
    gang.assignment.generation = generation;
    gang.assignment.epoch = 3;
    gang.assignment.goal = Goal::kPrepare;
    gang.assignment.job_key = std::string(32, '\1');
    LocalTask task;
    task.argv = {"train"};
    task.ranks = {{0, 0, {}}};
    gang.assignment.spec.emplace();
    gang.assignment.spec->tasks = {task};
    gang.status.job = job;
    gang.status.job_uid = "uid";
    gang.status.generation = generation;
    gang.status.phase = GangPhase::kLaunched;
    gang.status.ranks.resize(1);
    gang.link_nonces = {{0, std::string("n\0nce", 5)}};
    return gang;
  }

  FileSystem* const files_ = RealFileSystem();
  std::string dir_;
  std::unique_ptr<TaskStore> store_;
};

TEST_F(TaskStoreTest, WhatWasSavedIsFoundAgain) {
  ASSERT_TRUE(store_->Save(Gang("a", 1)).ok());
  ASSERT_TRUE(store_->Save(Gang("a", 2)).ok());
  StoredGang changed = Gang("a", 2);
  changed.status.phase = GangPhase::kStopped;
  ASSERT_TRUE(store_->Save(changed).ok());
  const auto found = TaskStore(files_, dir_).LoadAll();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->gangs, ElementsAre(Gang("a", 1), changed));
  EXPECT_THAT(found->damaged, IsEmpty());
  const auto aside = store_->SetAside(store_->GangDirectory({"a", 1}));
  ASSERT_TRUE(aside.ok()) << aside.status();
  const auto rest = store_->LoadAll();
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(rest->gangs, SizeIs(1));
  EXPECT_THAT(rest->damaged, IsEmpty());
  EXPECT_THAT(rest->aside, ElementsAre(*aside));
  EXPECT_EQ(store_->SetAside(store_->GangDirectory({"a", 1})).status().code(),
            StatusCode::kNotFound);
}

TEST_F(TaskStoreTest, TheRecordHoldsAKeyAndIsForItsOwnerOnly) {
  ASSERT_TRUE(store_->Save(Gang("a", 1)).ok());
  const auto info = files_->Stat(store_->GangDirectory({"a", 1}) + "/gang");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->mode & 077, 0u);
}

TEST_F(TaskStoreTest, DamagedRecordsAreNamedAndOthersAreNot) {
  ASSERT_TRUE(store_->Save(Gang("a", 1)).ok());
  ASSERT_TRUE(store_->Save(Gang("b", 1)).ok());
  const std::string path = store_->GangDirectory({"b", 1}) + "/gang";
  std::string bytes = files_->Read(path).value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(files_->WriteAtomic(path, bytes).ok());
  // One that was renamed, and one without a record.
  ASSERT_TRUE(files_
                  ->Rename(store_->GangDirectory({"a", 1}),
                           store_->GangDirectory({"c", 1}))
                  .ok());
  ASSERT_TRUE(store_->MakeRankDirectories({"d", 1}, 0, geteuid(), 0).ok());
  const auto found = store_->LoadAll();
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(found->gangs, IsEmpty());
  EXPECT_THAT(found->damaged, SizeIs(3));
}

TEST_F(TaskStoreTest, NoPrefixOfARecordIsTakenForOne) {
  const std::string bytes = EncodeStoredGang(Gang("a", 1));
  ASSERT_TRUE(DecodeStoredGang(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(DecodeStoredGang(bytes.substr(0, size)).status().code(),
              StatusCode::kDataLoss);
  }
}

TEST_F(TaskStoreTest, TheIncarnationRisesAndIsNeverGuessed) {
  EXPECT_EQ(NextIncarnation(files_, dir_).value(), 1u);
  EXPECT_EQ(NextIncarnation(files_, dir_).value(), 2u);
  for (const char* bytes :
       {"", "x\n", "3", "3\n4\n", "18446744073709551615\n"}) {
    ASSERT_TRUE(files_->WriteAtomic(dir_ + "/incarnation", bytes).ok());
    EXPECT_EQ(NextIncarnation(files_, dir_).status().code(),
              StatusCode::kDataLoss)
        << bytes;
  }
}

TEST_F(TaskStoreTest, WhatWasObeyedIsKeptAndDamageIsNotTakenForNone) {
  EXPECT_EQ(LoadObeyed(files_, dir_).value(), StorePoint());
  const std::string history(kHistoryDigits, 'a');
  const StorePoint point{history, 12, 7};
  ASSERT_TRUE(SaveObeyed(files_, dir_, point).ok());
  EXPECT_EQ(LoadObeyed(files_, dir_).value(), point);
  const std::string version = dir_ + "/obeyed-version";
  ASSERT_TRUE(NoteObeyedVersion(files_, dir_, {history, 12, 9}).ok());
  EXPECT_EQ(LoadObeyed(files_, dir_).value(), (StorePoint{history, 12, 9}));
  StorePoint known = point;
  known.epoch_id = std::string(kHistoryDigits, 'c');
  ASSERT_TRUE(SaveObeyed(files_, dir_, known).ok());
  known.version = 10;
  ASSERT_TRUE(NoteObeyedVersion(files_, dir_, known).ok());
  EXPECT_EQ(LoadObeyed(files_, dir_).value(), known);
  ASSERT_TRUE(SaveObeyed(files_, dir_, point).ok());
  // Of another epoch or history, and torn by a power loss: the saved one
  // counts.
  for (const std::string& text :
       {history + " 11 99\n", std::string(32, 'b') + " 12 99\n", history,
        std::string()}) {
    ASSERT_TRUE(files_->WriteAtomic(version, text).ok());
    EXPECT_EQ(LoadObeyed(files_, dir_).value(), point) << text;
  }
  for (const std::string& text :
       {std::string(), history, history + " 12\n", history + " 12 7",
        history + " x 7\n", history + " 12 -7\n", std::string("short 12 7\n"),
        history + " 12 7\n\n", history + " 12 7 cc\n",
        history + " 12 7 " + history, history + " 12 7 " + history + "a\n"}) {
    ASSERT_TRUE(files_->WriteAtomic(dir_ + "/obeyed", text).ok());
    EXPECT_EQ(LoadObeyed(files_, dir_).status().code(), StatusCode::kDataLoss)
        << text;
  }
}

TEST_F(TaskStoreTest, AnEpochOfADaemonFromBeforeHistoriesIsTakenOver) {
  ASSERT_TRUE(files_->WriteAtomic(dir_ + "/epoch", "12\n").ok());
  EXPECT_EQ(LoadObeyed(files_, dir_).value(), (StorePoint{"", 12, 0}));
  ASSERT_TRUE(
      SaveObeyed(files_, dir_, {std::string(kHistoryDigits, 'a'), 13, 0}).ok());
  EXPECT_FALSE(files_->Exists(dir_ + "/epoch"));
  for (const char* text :
       {"", "12", "x\n", "-1\n", "12\n\n", "18446744073709551616\n"}) {
    ASSERT_TRUE(files_->RemoveAll(dir_ + "/obeyed").ok());
    ASSERT_TRUE(files_->WriteAtomic(dir_ + "/epoch", text).ok());
    EXPECT_EQ(LoadObeyed(files_, dir_).status().code(), StatusCode::kDataLoss)
        << text;
  }
}

}  // namespace
}  // namespace lockstep::worker::agent
