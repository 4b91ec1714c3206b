#include "server/logs/log_sweeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <thread>

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;

const WallTime kNow = FromUnixNanos(int64_t{1'767'225'600} * 1'000'000'000);

FoundLogs Ended(const std::string& uid, Duration ago, uint64_t bytes) {
  return {{uid, bytes, {}}, {true, kNow - ago}};
}

TEST(LogSweeperTest, LogsOfNobodyAndOldOnesGo) {
  EXPECT_THAT(LogsToRemove({{{"live", 10, {}}, {true, {}}},
                            {{"nobody", 10, kNow - 25h}, {false, {}}},
                            {{"lately", 10, kNow - 23h}, {false, {}}},
                            Ended("old", 25h, 10),
                            Ended("new", 23h, 10)},
                           24h, 1000, kNow),
              ElementsAre("nobody", "old"));
}

TEST(LogSweeperTest, FirstEndedGoUntilTheRestFits) {
  const std::vector<FoundLogs> found = {{{"live", 1000, {}}, {true, {}}},
                                        Ended("third", 1h, 100),
                                        Ended("first", 3h, 100),
                                        Ended("second", 2h, 100),
                                        Ended("just", 9min, 100)};
  EXPECT_THAT(LogsToRemove(found, 24h, 1200, kNow),
              ElementsAre("first", "second"));
  EXPECT_THAT(LogsToRemove(found, 24h, 1400, kNow), IsEmpty());
  // What goes on, or has just ended, stays whatever its size.
  EXPECT_THAT(LogsToRemove(found, 24h, 0, kNow),
              ElementsAre("first", "second", "third"));
}

TEST(LogSweeperTest, WorkingDirectoriesAreKeptAsLongAsLogsAre) {
  EXPECT_TRUE(KeepsWork({false, {}}, true, kNow)) << "the store may be old";
  EXPECT_FALSE(KeepsWork({false, {}}, false, kNow)) << "of no job";
  EXPECT_TRUE(KeepsWork({true, {}}, false, kNow)) << "it goes on";
  EXPECT_TRUE(KeepsWork({true, kNow - 24h}, true, kNow));
  EXPECT_FALSE(KeepsWork({true, kNow - 24h}, false, kNow));
  EXPECT_TRUE(KeepsWork({true, kNow - 9min}, false, kNow))
      << "logs may still come";
}

// Shows what is written now as two days old.
class LaterClock final : public Clock {
 public:
  Time Now() const override {
    Time now = SystemClock().Now();
    now.wall += 48h;
    return now;
  }
};

TEST(LogSweeperTest, RemovesFromDiskAndLaterBytesBeginAnew) {
  char name[] = "/tmp/log_sweeper_test.XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  FileSystem* files = RealFileSystem();
  const std::string dir = JoinPath(name, "logs");
  {
    SystemClock clock;
    LogStore store(files, dir);
    const auto write = [&](const std::string& uid, uint64_t offset,
                           const std::string& data) {
      Mutex mu;
      CondVar done;
      std::optional<uint64_t> size;
      EXPECT_TRUE(store
                      .Append({uid, 1, 0}, offset, data, false,
                              [&](const LogStore::Ack& ack) {
                                MutexLock lock(&mu);
                                size = ack.offset;
                                done.NotifyAll();
                              })
                      .ok());
      MutexLock lock(&mu);
      const MonoTime deadline = clock.Now().mono + 20s;
      while (!size && done.WaitUntil(&mu, deadline)) {
      }
      return size.value_or(99);
    };
    EXPECT_EQ(write("keep", 0, "hello"), 5u);
    EXPECT_EQ(write("drop", 0, "hello"), 5u);
    const auto listed = store.List();
    ASSERT_TRUE(listed.ok());
    ASSERT_EQ(listed->size(), 2u);
    EXPECT_EQ((*listed)[0].bytes, 5u);
    LogSweeperOptions options;
    options.interval = 10ms;
    options.find_owner = [](const std::string& uid) {
      return LogOwner{uid == "keep", {}};
    };
    std::atomic<int> told = 0;
    options.removed = [&](const std::string& uid) {
      if (uid == "drop") ++told;
    };
    const LaterClock later;
    LogSweeper sweeper(options, &store, &later);
    const MonoTime deadline = clock.Now().mono + 20s;
    while (files->Exists(JoinPath(dir, "drop")) &&
           clock.Now().mono < deadline) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_FALSE(files->Exists(JoinPath(dir, "drop")));
    EXPECT_GE(told, 1);
    EXPECT_EQ(*store.Read({"keep", 1, 0}, 0, 100), "hello");
    EXPECT_EQ(*store.Read({"drop", 1, 0}, 0, 100), "");
    EXPECT_EQ(store.Read({"drop", 1, 0}, 5, 100).status().code(),
              StatusCode::kNotFound)
        << "who had the beginning hears that there is no end";
    EXPECT_EQ(write("drop", 5, "more"), 0u) << "a gap: send again";
  }
  (void)files->RemoveAll(name);
}

}  // namespace
}  // namespace lockstep::server
