// Whatever a daemon said was kept is there after a loss of power: the records
// of a worker daemon, logs and packages of the coordinator. Over a file system
// that forgets every byte and every name that was not synced; leaving any one
// sync out must be noticed here. Checkpoints: worker/checkpoint/crash_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>

#include "common/base/hex.h"
#include "common/base/sha256.h"
#include "server/logs/log_store.h"
#include "server/packages/package_store.h"
#include "tests/support/fake_clock.h"
#include "worker/agent/store/task_store.h"
#include "worker/checkpoint/memory_file_system.h"

namespace lockstep {
namespace {

using server::LogStore;
using server::PackageStore;
using server::PackageStoreOptions;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using worker::agent::LoadObeyed;
using worker::agent::NextIncarnation;
using worker::agent::NoteObeyedVersion;
using worker::agent::SaveObeyed;
using worker::agent::StoredGang;
using worker::agent::TaskStore;
using worker::checkpoint::MemoryFileSystem;
using std::chrono_literals::operator""s;

constexpr char kDir[] = "/state";

// A disk with the daemon's directory, and in it `folders`.
std::unique_ptr<MemoryFileSystem> Disk(std::vector<std::string> folders) {
  auto disk = std::make_unique<MemoryFileSystem>();
  EXPECT_TRUE(disk->MakeDirs(kDir, 0700).ok());
  EXPECT_TRUE(disk->SyncDir("/").ok());
  for (const std::string& folder : folders) {
    EXPECT_TRUE(disk->MakeDirs(JoinPath(kDir, folder), 0700).ok());
  }
  EXPECT_TRUE(disk->SyncDir(kDir).ok());
  return disk;
}

// `keep` says that something is kept; `is_there` must hold after a loss of
// power. Without one of the syncs that `keep` made it must not, except where
// the same is synced again later.
void ExpectDurable(const std::vector<std::string>& folders,
                   const std::function<void(MemoryFileSystem*)>& keep,
                   const std::function<bool(MemoryFileSystem*)>& is_there) {
  const auto disk = Disk(folders);
  const auto before = static_cast<ptrdiff_t>(disk->syncs().size());
  keep(disk.get());
  const std::vector<std::string> syncs = disk->syncs();
  EXPECT_TRUE(is_there(disk.get()));
  disk->PowerLoss();
  EXPECT_TRUE(is_there(disk.get())) << "lost";
  ASSERT_GT(std::ssize(syncs), before);
  for (auto it = syncs.begin() + before; it != syncs.end(); ++it) {
    if (std::find(it + 1, syncs.end(), *it) != syncs.end()) continue;
    const auto other = Disk(folders);
    other->SkipSync(static_cast<int>(it - syncs.begin()));
    keep(other.get());
    other->PowerLoss();
    EXPECT_FALSE(is_there(other.get())) << "nobody needs the sync of " << *it;
  }
}

StoredGang Gang(Generation generation) {
  StoredGang gang;
  gang.assignment.job = "job";
  gang.assignment.job_uid = "uid";
  gang.assignment.generation = generation;
  gang.assignment.epoch = 3;
  gang.assignment.goal = Goal::kStop;
  gang.status.job = "job";
  gang.status.job_uid = "uid";
  gang.status.generation = generation;
  gang.status.phase = GangPhase::kLaunched;
  return gang;
}

TEST(PowerLossTest, AGangThatWasSaved) {
  ExpectDurable(
      {},
      [](MemoryFileSystem* disk) {
        TaskStore store(disk, kDir);
        EXPECT_TRUE(store.Init().ok());
        EXPECT_TRUE(store.Save(Gang(7)).ok());
      },
      [](MemoryFileSystem* disk) {
        const auto found = TaskStore(disk, kDir).LoadAll();
        return found.ok() && found->gangs.size() == 1 &&
               found->gangs[0] == Gang(7);
      });
}

TEST(PowerLossTest, AGangThatChangedIsTheNewOrTheOldOne) {
  const auto disk = Disk({});
  TaskStore store(disk.get(), kDir);
  ASSERT_TRUE(store.Init().ok());
  ASSERT_TRUE(store.Save(Gang(7)).ok());
  StoredGang changed = Gang(7);
  changed.status.phase = GangPhase::kStopped;
  // The power goes at each of the operations of the second Save.
  for (int at = 1;; ++at) {
    disk->FailAt(disk->operations() + at, /*and_after=*/true);
    const bool saved = store.Save(changed).ok();
    disk->FailAt(0, false);
    disk->PowerLoss();
    const auto found = TaskStore(disk.get(), kDir).LoadAll();
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_THAT(found->gangs, SizeIs(1)) << at;
    if (saved) {
      EXPECT_EQ(found->gangs[0], changed);
      break;
    }
    EXPECT_THAT((std::vector<StoredGang>{Gang(7), changed}),
                Contains(found->gangs[0]))
        << at;
  }
}

TEST(PowerLossTest, WhoTheDaemonIsAndWhomItObeyed) {
  ExpectDurable(
      {},
      [](MemoryFileSystem* disk) {
        EXPECT_EQ(NextIncarnation(disk, kDir).value_or(0), 1u);
      },
      [](MemoryFileSystem* disk) {
        return disk->Read(JoinPath(kDir, "incarnation"), 64).value_or("") ==
               "1\n";
      });
  const StorePoint obeyed{std::string(kHistoryDigits, 'a'), 12, 3};
  ExpectDurable(
      {},
      [&](MemoryFileSystem* disk) {
        EXPECT_TRUE(SaveObeyed(disk, kDir, obeyed).ok());
        // Not synced: it may be lost, and may not take the other with it.
        StorePoint later = obeyed;
        later.version = 9;
        EXPECT_TRUE(NoteObeyedVersion(disk, kDir, later).ok());
      },
      [&](MemoryFileSystem* disk) {
        const auto read = LoadObeyed(disk, kDir);
        return read.ok() && read->history == obeyed.history &&
               read->epoch == 12 && read->version >= 3;
      });
}

// Waits until `store` has said that the bytes are there.
LogStore::Ack Append(LogStore* store, uint64_t offset, const std::string& data,
                     bool end) {
  auto told = std::make_shared<std::promise<LogStore::Ack>>();
  std::future<LogStore::Ack> ack = told->get_future();
  const Status queued = store->Append(
      {"uid", 1, 0}, offset, data, end,
      [told](const LogStore::Ack& now) { told->set_value(now); },
      /*life=*/1);
  EXPECT_TRUE(queued.ok()) << queued;
  if (ack.wait_for(60s) != std::future_status::ready) {
    ADD_FAILURE() << "not acknowledged";
    return {};
  }
  return ack.get();
}

// The node forgets what is acknowledged.
TEST(PowerLossTest, LinesThatWereAcknowledged) {
  ExpectDurable(
      {"logs"},
      [](MemoryFileSystem* disk) {
        LogStore store(disk, JoinPath(kDir, "logs"));
        EXPECT_EQ(Append(&store, 0, "one\n", false).offset, 4u);
      },
      [](MemoryFileSystem* disk) {
        return disk->Read("/state/logs/uid/g1-r0.log", 100).value_or("") ==
               "one\n";
      });
}

TEST(PowerLossTest, TheEndOfALogThatWasAcknowledged) {
  ExpectDurable(
      {"logs"},
      [](MemoryFileSystem* disk) {
        LogStore store(disk, JoinPath(kDir, "logs"));
        EXPECT_EQ(Append(&store, 0, "one\n", false).offset, 4u);
        EXPECT_TRUE(Append(&store, 4, "two\n", true).end);
      },
      [](MemoryFileSystem* disk) {
        return disk->Read("/state/logs/uid/g1-r0.log", 100).value_or("") ==
                   "one\ntwo\n" &&
               disk->Read("/state/logs/uid/g1-r0.end", 100).value_or("") == "1";
      });
}

Package PackageOf(const std::string& bytes) {
  return {"sha256:" + ToHex(Sha256(bytes)), static_cast<int64_t>(bytes.size()),
          PackageFormat::kTree, "trainer.tar.gz"};
}

// The job that needs it is submitted once it is stored.
TEST(PowerLossTest, APackageThatWasStored) {
  const std::string bytes = "the code";
  const Package package = PackageOf(bytes);
  FakeClock clock;
  const auto open = [&](MemoryFileSystem* disk) {
    PackageStoreOptions options;
    options.dir = JoinPath(kDir, "packages");
    options.free_bytes = [] { return uint64_t{1} << 40; };
    auto store = PackageStore::Open(disk, std::move(options), &clock);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  };
  ExpectDurable(
      {"packages"},
      [&](MemoryFileSystem* disk) {
        const auto store = open(disk);
        auto upload = store->Begin({"user/ann"}, package);
        ASSERT_TRUE(upload.ok() && *upload != nullptr) << upload.status();
        EXPECT_TRUE((*upload)->Append(bytes).ok());
        EXPECT_TRUE((*upload)->Finish().ok());
      },
      [&](MemoryFileSystem* disk) {
        const auto store = open(disk);
        const auto content = store->Read(package.digest);
        if (!content.ok() || !store->Keep({"user/ann"}, package)) return false;
        std::string read(content->bytes, '\0');
        return content->file->ReadAt(0, read.data(), read.size()).value_or(0) ==
                   read.size() &&
               read == bytes;
      });
}

}  // namespace
}  // namespace lockstep
