#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <thread>

#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/fault_point.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/leave.h"
#include "common/base/logging.h"
#include "common/base/one_line.h"
#include "common/base/random.h"
#include "common/base/repeating_thread.h"
#include "common/base/shared_value.h"
#include "common/base/status.h"
#include "common/base/utf8.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TEST(StatusTest, AnnotateKeepsCodeAndReason) {
  const Status s = Annotate(
      WithReason(NotFound("no job {}", "a"), "NO_SUCH_JOB"), "describing");
  EXPECT_EQ(s.code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(s), "describing: no job a");
  EXPECT_EQ(ReasonOf(s), "NO_SUCH_JOB");
}

TEST(StatusTest, ADaemonsMistakeHasItsOwnExitCode) {
  EXPECT_EQ(DaemonExitCode(OkStatus()), 0);
  EXPECT_EQ(DaemonExitCode(InvalidArgument("x")), 2);
  EXPECT_EQ(DaemonExitCode(Unavailable("x")), 1);
}

TEST(StatusTest, ErrnoBecomesTheMatchingCode) {
  EXPECT_EQ(ErrnoStatus(ENOSPC, "x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(ENOENT, "x").code(), StatusCode::kNotFound);
}

TEST(SharedTest, CopiesShareUntilOneIsChanged) {
  using Texts = std::vector<std::string>;
  Shared<Texts> a = {"x", "y"};
  EXPECT_THAT(a, testing::ElementsAre("x", "y"));
  Shared<Texts> b = a;
  EXPECT_EQ(a.identity(), b.identity());
  b.push_back("z");
  EXPECT_NE(a.identity(), b.identity());
  EXPECT_EQ(a, (Texts{"x", "y"}));
  EXPECT_EQ(b, (Texts{"x", "y", "z"}));
  // The only one changes in place.
  const void* const own = b.identity();
  b.Edit()[0] = "w";
  EXPECT_EQ(b.identity(), own);
  const Texts& as_value = b;
  EXPECT_EQ(as_value[0], "w");
  EXPECT_EQ(a[0], "x");
  // Equal by value; an empty one takes nothing.
  b = Texts{"x", "y"};
  EXPECT_EQ(a, b);
  b = {};
  EXPECT_EQ(b.identity(), nullptr);
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(b, Shared<Texts>(Texts()));

  Shared<std::optional<std::string>> none;
  EXPECT_FALSE(none.get());
  auto some = none;
  some.Edit() = "text";
  EXPECT_FALSE(none.get());
  EXPECT_EQ(*some.get(), "text");
}

TEST(LoggingTest, LevelsAreKnownByName) {
  for (const char* level : {"debug", "info", "warn", "error"}) {
    EXPECT_TRUE(CheckLogLevel(level).ok()) << level;
  }
  EXPECT_THAT(Message(CheckLogLevel("loud")), testing::HasSubstr("\"loud\""));
  EXPECT_FALSE(CheckLogLevel("").ok());
}

// A process whose stderr is `file`, which JOURNAL_STREAM may name.
void LogTo(const std::string& file, bool is_journal) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  struct stat info {};
  fstat(fd, &info);
  dup2(fd, STDERR_FILENO);
  const std::string stream =
      fmt::format("{}:{}", info.st_dev, info.st_ino + (is_journal ? 0 : 1));
  setenv("JOURNAL_STREAM", stream.c_str(), 1);
  InitLogging("logging_test", "debug");
  LOG_DEBUG("a");
  LOG_INFO("b");
  LOG_WARN("c");
  LOG_ERROR("d");
  fprintf(stderr, "%sprogram: e\n", std::string(ErrorPrefix()).c_str());
  _exit(0);
}

TEST(LoggingTest, LinesInTheJournalHaveTheirPriority) {
  const std::string file =
      fmt::format("/tmp/lockstep-logging-test-{}", getpid());
  EXPECT_EXIT(LogTo(file, true), testing::ExitedWithCode(0), "");
  EXPECT_THAT(*RealFileSystem()->Read(file),
              testing::MatchesRegex("<7>2[^\n]*debug[^\n]*: a\n"
                                    "<6>2[^\n]*info[^\n]*: b\n"
                                    "<4>2[^\n]*warning[^\n]*: c\n"
                                    "<3>2[^\n]*error[^\n]*: d\n"
                                    "<3>program: e\n"));
  unlink(file.c_str());
  // The variable is inherited, and stderr is another.
  EXPECT_EXIT(LogTo(file, false), testing::ExitedWithCode(0), "");
  EXPECT_THAT(*RealFileSystem()->Read(file),
              testing::AllOf(testing::StartsWith("2"),
                             testing::Not(testing::HasSubstr("<"))));
  unlink(file.c_str());
  EXPECT_FALSE(IsJournal(STDERR_FILENO, nullptr));
  EXPECT_FALSE(IsJournal(-1, "0:0"));
}

TEST(Utf8Test, OnlyTheShortestFormOfARealCharacter) {
  EXPECT_EQ(Utf8Length("a\xff"), 1u);
  EXPECT_EQ(Utf8Length("\xc3\xa9-"), 2u);
  EXPECT_EQ(Utf8Length("\xe2\x82\xac"), 3u);
  EXPECT_EQ(Utf8Length("\xf4\x8f\xbf\xbf"), 4u);
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3-", "\xe0\x9f\xbf",
        "\xe2\x82", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(Utf8Length(bad), 0u) << OneLine(bad);
    EXPECT_FALSE(IsUtf8(std::string("a") + bad)) << OneLine(bad);
  }
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\xc3\xa9\xf4\x8f\xbf\xbf"));
}

TEST(LoggingTest, NoMessageIsMoreThanOneLine) {
  EXPECT_EQ(OneLine("a\tb é"), "a b é");
  EXPECT_EQ(OneLine("x\naudit: user root called"),
            "x\\naudit: user root called");
  EXPECT_EQ(OneLine("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(OneLine("a\xc2\x9b"
                    "2J"),
            "a\\u009b2J");
  EXPECT_EQ(OneLine(std::string_view("\0\xc2", 2)), "\\x00\\xc2");
  // Bytes that begin and continue nothing, too long forms of U+009B and of a
  // newline, a half of a pair, and what is above the last character.
  EXPECT_EQ(OneLine("a\x9b"
                    "2J\x85"),
            "a\\x9b2J\\x85");
  EXPECT_EQ(OneLine("\xe0\x82\x9b \xc0\x8a \xed\xa0\x80 \xf4\x90\x80\x80"),
            "\\xe0\\x82\\x9b \\xc0\\x8a \\xed\\xa0\\x80 "
            "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(OneLine("grün 火 🚂 \xe7\x81"), "grün 火 🚂 \\xe7\\x81");
  const std::string file =
      fmt::format("/tmp/lockstep-logging-lines-{}", getpid());
  const auto log = [&] {
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    InitLogging("logging_test", "debug");
    LOG_WARN("grpc: {}", "header\n2026-11-24T00:00:00.000Z info x: audit: me");
    LOG_WARN("lone {}",
             "\x80\x85\x9b"
             "2J\xff");
    _exit(0);
  };
  EXPECT_EXIT(log(), testing::ExitedWithCode(0), "");
  const std::string said = *RealFileSystem()->Read(file);
  EXPECT_THAT(said, testing::MatchesRegex("[^\n]*grpc: header[^\n]*audit: me\n"
                                          "[^\n]*: lone [^\n]*\n"));
  EXPECT_THAT(said, testing::HasSubstr("lone \\x80\\x85\\x9b2J\\xff\n"));
  unlink(file.c_str());
}

TEST(ClockTest, DurationsReadAsAPersonWouldSayThem) {
  EXPECT_EQ(FormatDuration(850ms), "850 ms");
  EXPECT_EQ(FormatDuration(12340ms), "12.3 s");
  EXPECT_EQ(FormatDuration(59960ms), "1 m 00 s");
  EXPECT_EQ(FormatDuration(7800s), "2 h 10 m");
  EXPECT_EQ(FormatWallTime(FromUnixNanos(-1'000'000)),
            "1969-12-31T23:59:59.999Z");
}

// The vectors of RFC 3720, appendix B.4.
TEST(Crc32cTest, MatchesThePublishedVectors) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(ExtendCrc32c(Crc32c("12345"), "6789", 4), Crc32c("123456789"));
}

TEST(RepeatingThreadTest, WorksAgainAfterEachIntervalUntilItEnds) {
  std::atomic<int> runs = 0;
  {
    RepeatingThread thread(std::chrono::milliseconds(1), [&] { ++runs; });
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(30);
    while (runs < 3 && MonotonicNow() < deadline) std::this_thread::yield();
    EXPECT_GE(runs, 3);
  }
  {
    // The end does not wait for the interval.
    RepeatingThread thread(std::chrono::hours(1), [&] { runs = -1; });
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(30);
    while (runs != -1 && MonotonicNow() < deadline) std::this_thread::yield();
  }
  EXPECT_EQ(runs, -1);
}

TEST(RandomTest, IdsDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(RandomUuid());
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(ids.begin()->size(), 36u);
  EXPECT_EQ((*ids.begin())[14], '4');
}

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-base-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    EXPECT_TRUE(fs_->RemoveAll(dir_).ok());
    EXPECT_FALSE(fs_->Exists(dir_));
  }
  FileSystem* const fs_ = RealFileSystem();
  std::string dir_;
};

TEST_F(FileTest, WriteAtomicReplacesAndLeavesNoTemporary) {
  const std::string path = JoinPath(dir_, "record");
  ASSERT_TRUE(fs_->WriteAtomic(path, "one").ok());
  ASSERT_TRUE(fs_->WriteAtomic(path, "two", 0600).ok());
  EXPECT_EQ(*fs_->Read(path), "two");
  EXPECT_EQ(fs_->Stat(path)->mode, 0600u);
  EXPECT_THAT(*fs_->List(dir_), testing::ElementsAre("record"));
}

TEST_F(FileTest, OpenReadReadsAnyRangeAndStopsAtTheEnd) {
  ASSERT_TRUE(fs_->WriteAtomic(dir_ + "/file", "0123456789").ok());
  auto file = fs_->OpenRead(dir_ + "/file");
  ASSERT_TRUE(file.ok());
  char buffer[8];
  auto n = (*file)->ReadAt(7, buffer, sizeof(buffer));
  ASSERT_TRUE(n.ok());
  EXPECT_EQ(std::string(buffer, *n), "789");
  EXPECT_EQ((*file)->ReadAt(10, buffer, sizeof(buffer)).value(), 0u);
  EXPECT_FALSE(fs_->OpenRead(dir_ + "/none").ok());
}

TEST_F(FileTest, ErrorsNameThePath) {
  const auto missing = fs_->Read(JoinPath(dir_, "no"));
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(missing.status()), testing::HasSubstr(dir_ + "/no"));
  ASSERT_TRUE(fs_->WriteAtomic(JoinPath(dir_, "f"), "x").ok());
  EXPECT_EQ(fs_->MakeDirs(JoinPath(dir_, "f/g")).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(fs_->Read(JoinPath(dir_, "f"), 0).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(FileTest, MakeDirsMakesParentsAndMayBeRepeated) {
  const std::string deep = JoinPath(dir_, "a/b/c");
  ASSERT_TRUE(fs_->MakeDirs(deep).ok());
  ASSERT_TRUE(fs_->MakeDirs(deep).ok());
  EXPECT_TRUE(fs_->Stat(deep)->is_directory);
}

TEST_F(FileTest, RemoveAllTakesLinksAndNotWhatTheyPointTo) {
  const std::string kept = JoinPath(dir_, "kept");
  ASSERT_TRUE(fs_->MakeDirs(kept).ok());
  ASSERT_TRUE(fs_->WriteAtomic(JoinPath(kept, "f"), "x").ok());
  const std::string tree = JoinPath(dir_, "tree");
  ASSERT_TRUE(fs_->MakeDirs(JoinPath(tree, "a/b")).ok());
  ASSERT_TRUE(fs_->WriteAtomic(JoinPath(tree, "a/f"), "x").ok());
  ASSERT_EQ(symlink(kept.c_str(), JoinPath(tree, "a/link").c_str()), 0);
  EXPECT_TRUE(fs_->RemoveAll(tree).ok());
  ASSERT_EQ(symlink(kept.c_str(), tree.c_str()), 0);
  EXPECT_TRUE(fs_->RemoveAll(tree + "/").ok());
  EXPECT_TRUE(fs_->RemoveAll(tree).ok());
  EXPECT_THAT(*fs_->List(dir_), testing::ElementsAre("kept"));
  EXPECT_THAT(*fs_->List(kept), testing::ElementsAre("f"));
  EXPECT_EQ(fs_->RemoveAll(kept + "/f/g").code(),
            StatusCode::kFailedPrecondition);
}

// Deeper than a path or a process's descriptors can be.
TEST_F(FileTest, RemoveAllGoesToAnyDepth) {
  const std::string tree = JoinPath(dir_, "tree");
  ASSERT_TRUE(fs_->MakeDirs(tree).ok());
  Fd at(open(tree.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 2200; ++i) {
    ASSERT_EQ(mkdirat(at.get(), "d", 0755), 0);
    const Fd file(openat(at.get(), "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(file);
    at.Reset(openat(at.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at);
  }
  EXPECT_TRUE(fs_->RemoveAll(tree).ok());
  EXPECT_FALSE(fs_->Exists(tree));
}

// Its owner puts a link in the place of a directory while it is removed.
TEST_F(FileTest, RemoveAllIsNotLedOutside) {
  const std::string kept = JoinPath(dir_, "kept");
  ASSERT_TRUE(fs_->MakeDirs(kept).ok());
  ASSERT_TRUE(fs_->WriteAtomic(JoinPath(kept, "f"), "x").ok());
  const std::string tree = JoinPath(dir_, "tree");
  const std::string link = JoinPath(dir_, "link");
  std::atomic<bool> stop{false};
  std::thread evil([&] {
    while (!stop) {
      (void)renameat2(AT_FDCWD, link.c_str(), AT_FDCWD, (tree + "/d").c_str(),
                      RENAME_EXCHANGE);
    }
  });
  // Each may fail where the other was faster; what is kept stays.
  for (int i = 0; i < 500; ++i) {
    (void)fs_->MakeDirs(tree + "/d");
    (void)fs_->RemoveAll(link);
    (void)!symlink(kept.c_str(), link.c_str());
    (void)fs_->RemoveAll(tree);
    if (!fs_->Exists(kept + "/f")) break;
  }
  stop = true;
  evil.join();
  EXPECT_THAT(*fs_->List(kept), testing::ElementsAre("f"));
}

TEST(FaultPointTest, FailsAtTheNthPassOnly) {
  ASSERT_TRUE(EnableFaults("a=error@2").ok());
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_TRUE(FaultPoint("b").ok());
  EXPECT_FALSE(FaultPoint("a").ok());
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_EQ(EnableFaults("a=sometimes").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EnableFaults("a=error@+").code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(EnableFaults("a=error@2+").ok());
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_FALSE(FaultPoint("a").ok());
  EXPECT_FALSE(FaultPoint("a").ok());
  ASSERT_TRUE(EnableFaults("").ok());
}

TEST(FaultPointTest, CrashHasItsOwnExitCode) {
  EXPECT_EXIT(
      {
        (void)EnableFaults("a=crash@1");
        (void)FaultPoint("a");
      },
      testing::ExitedWithCode(kFaultExitCode), "");
}

}  // namespace
}  // namespace lockstep
