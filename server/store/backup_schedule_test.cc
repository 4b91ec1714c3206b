#include "server/store/backup_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstdlib>

#include "common/base/file.h"
#include "server/store/sqlite_store.h"
#include "server/store/testing.h"
#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(BackupNameTest, NamesSortByTimeAndAreReadBack) {
  const WallTime time = FromUnixNanos(1'795'485'600'000'000'000);
  EXPECT_EQ(BackupName(time), "coordinator-20261124T020000Z.db");
  EXPECT_EQ(TimeOfBackup(BackupName(time)), time);
  EXPECT_LT(BackupName(time), BackupName(time + 1s));
  for (const char* other :
       {"", "coordinator.db", "coordinator-20261124T020000Z.db.part",
        "coordinator-20261399T020000Z.db", "coordinator-x.db"}) {
    EXPECT_EQ(TimeOfBackup(other), std::nullopt) << other;
  }
}

TEST(BackupNameTest, TheOldestGoAndOtherFilesStay) {
  const std::string a = "coordinator-20261124T010000Z.db";
  const std::string b = "coordinator-20261124T020000Z.db";
  const std::string c = "coordinator-20261124T030000Z.db";
  EXPECT_THAT(BackupsToRemove({c, "before-upgrade.db", a, b}, 2),
              ElementsAre(a));
  EXPECT_THAT(BackupsToRemove({c, a, b}, 3), IsEmpty());
}

class BackupScheduleTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-backups-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    options_.store = JoinPath(dir_, "coordinator.db");
    options_.dir = JoinPath(dir_, "backups");
    options_.interval = 20ms;
    options_.keep = 2;
    options_.version = [this] { return version_.load(); };
    auto store = OpenSqliteStore(options_.store);
    ASSERT_TRUE(store.ok()) << Message(store.status());
    store_ = std::move(*store);
  }
  void TearDown() override {
    store_.reset();
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  void Commit() {
    StoreBatch batch;
    batch.version = version_ + 1;
    batch.jobs = {std::make_shared<const Job>(FullJob())};
    ASSERT_TRUE(store_->Commit(batch).ok());
    ++version_;
  }
  // Waits for `done` of the schedule's numbers.
  template <typename Done>
  bool Await(const BackupSchedule& schedule, Done done) {
    const MonoTime deadline = MonotonicNow() + 30s;
    while (!done(schedule.Stats())) {
      if (MonotonicNow() > deadline) return false;
      ::poll(nullptr, 0, 5);
    }
    return true;
  }

  std::string dir_;
  BackupOptions options_;
  std::atomic<int64_t> version_{0};
  std::unique_ptr<Store> store_;
  SystemClock clock_;
};

TEST_F(BackupScheduleTest, EachChangeIsCopiedAndTheOldestGo) {
  Commit();
  BackupSchedule schedule(options_, &clock_);
  for (uint64_t made = 1; made <= 3; ++made) {
    ASSERT_TRUE(Await(schedule, [&](const BackupStats& stats) {
      return stats.made == made && !stats.behind_since;
    })) << made;
    Commit();
  }
  const auto names = RealFileSystem()->List(options_.dir);
  ASSERT_TRUE(names.ok());
  EXPECT_LE(names->size(), 2u);
  // The newest is one to go on with.
  const std::string newest = JoinPath(options_.dir, names->back());
  const std::string other = JoinPath(dir_, "other.db");
  const auto restored = RestoreSqliteStore(newest, other);
  ASSERT_TRUE(restored.ok()) << Message(restored.status());
  EXPECT_GE(restored->point.version, 3);
}

TEST_F(BackupScheduleTest, AStoreThatIsAsItWasIsNotCopiedAgain) {
  Commit();
  FakeClock clock;
  std::atomic<int> looks{0};
  options_.version = [&] {
    ++looks;
    return version_.load();
  };
  BackupSchedule schedule(options_, &clock);
  ASSERT_TRUE(Await(schedule,
                    [](const BackupStats& stats) { return stats.made == 1; }));
  clock.Advance(std::chrono::hours(1));
  const int before = looks;
  ASSERT_TRUE(Await(schedule, [&](const BackupStats&) {
    return looks >= before + 5;
  })) << "it looks again and again";
  EXPECT_EQ(schedule.Stats().made, 1u);
  Commit();
  ASSERT_TRUE(Await(schedule,
                    [](const BackupStats& stats) { return stats.made == 2; }));
  EXPECT_EQ(schedule.Stats().failed, 0u);
}

TEST_F(BackupScheduleTest, AFolderThatCannotBeMadeIsCounted) {
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(options_.dir, "a file").ok());
  Commit();
  BackupSchedule schedule(options_, &clock_);
  ASSERT_TRUE(Await(schedule, [](const BackupStats& stats) {
    return stats.failed > 0 && stats.behind_since.has_value();
  }));
  EXPECT_EQ(schedule.Stats().made, 0u);
}

}  // namespace
}  // namespace lockstep::server
