// The log that a shim writes, and its reading.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/log_line.h"
#include "worker/shim/log_reader.h"
#include "worker/shim/shim_fixture.h"
#include "worker/task/log_files.h"

namespace lockstep::worker::shim {
namespace {

using task::ExitKind;
using task::ExitRecord;
using task::ShimSpec;
using testing::ElementsAre;
using testing::HasSubstr;

class ShimLogTest : public ShimTest {};

TEST_F(ShimLogTest, ALogThatCannotBeMadeIsSaidInTheExitRecord) {
  ShimSpec spec = Spec("true");
  spec.log_path = "/no/such/directory/log";
  const ExitRecord r = RunToEnd(spec);
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_THAT(r.message, HasSubstr("/no/such/directory/log"));
}

TEST_F(ShimLogTest, AHundredThousandLinesStayInOrder) {
  RunToEnd(Spec("seq 1 100000"));
  const std::vector<std::string> texts = Texts();
  ASSERT_EQ(texts.size(), 100'000u);
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(texts[i], std::to_string(i + 1));
  }
}

TEST_F(ShimLogTest, AHugeLineIsCutIntoParts) {
  RunToEnd(Spec("head -c 100000 /dev/zero | tr '\\0' x; echo; printf tail"));
  const std::vector<ParsedLine> lines = Log();
  std::string first;
  size_t i = 0;
  for (; i < lines.size(); ++i) {
    EXPECT_LE(lines[i].text.size(), cri::kMaxLogText);
    first += lines[i].text;
    if (lines[i].full) break;
  }
  EXPECT_EQ(first, std::string(100'000, 'x'));
  EXPECT_GE(i, 6u);
  ASSERT_EQ(lines.size(), i + 2);
  EXPECT_EQ(lines.back().text, "tail");
  EXPECT_TRUE(lines.back().full);
}

TEST_F(ShimLogTest, APromptIsSeenBeforeItsLineEnds) {
  Start(Spec("printf prompt; exec sleep 1000"));
  EXPECT_TRUE(Eventually([&] { return Texts().size() == 1; }));
  EXPECT_EQ(Log()[0].text, "prompt");
  EXPECT_FALSE(Log()[0].full);
}

// Lines as a reader puts them together from their parts.
std::vector<std::string> Joined(const std::vector<ParsedLine>& log) {
  std::vector<std::string> lines;
  std::string line;
  for (const ParsedLine& part : log) {
    cri::AppendToLine(part.text, &line);
    if (!part.full) continue;
    lines.emplace_back(cri::ShownLine(line));
    line.clear();
  }
  return lines;
}

TEST_F(ShimLogTest, OfABarThatIsRedrawnTheLastStateIsKept) {
  RunToEnd(
      Spec("i=0; while [ $i -lt 20000 ]; do printf '\\r%s%%' $i; "
           "i=$((i+1)); done; printf '\\n'; printf 'dos\\r\\n'; "
           "printf 'a\\rb\\r'"));
  const std::vector<ParsedLine> log = Log();
  EXPECT_THAT(Joined(log), ElementsAre("19999%", "dos", "b"));
  // 20,000 states take a moment: at most one part each second of it.
  EXPECT_LT(log.size(), 60u);
}

TEST_F(ShimLogTest, ABarThatIsRedrawnAllTheTimeIsSeenAboutOnceASecond) {
  // Never quiet for 200 ms.
  Start(
      Spec("i=0; while :; do i=$((i+1)); printf '\\r%s%%' $i; "
           "sleep 0.02; done"));
  ASSERT_TRUE(Eventually([&] { return Log().size() >= 3; }));
  const std::vector<ParsedLine> log = Log();
  for (size_t i = 0; i < log.size(); ++i) {
    EXPECT_FALSE(log[i].full);
    // It replaces the state before it.
    EXPECT_EQ(log[i].text.starts_with('\r'), i > 0) << log[i].text;
    if (i == 0) continue;
    EXPECT_GE(log[i].unix_nanos - log[i - 1].unix_nanos, 900'000'000);
  }
}

TEST_F(ShimLogTest, PartsAreALineWhenTheStreamEnds) {
  // The last state was a part already when the process ended.
  Start(Spec("printf prompt; while [ ! -e go ]; do sleep 0.01; done"));
  ASSERT_TRUE(Eventually([&] { return Texts().size() == 1; }));
  std::ofstream(Path("go")) << "x";
  ASSERT_TRUE(Eventually([&] { return Log().size() == 2; }));
  EXPECT_THAT(Joined(Log()), ElementsAre("prompt"));
}

TEST_F(ShimLogTest, OfALongLogTheHeadAndTheNewestAreKept) {
  ShimSpec spec = Spec("seq 1 50000");
  spec.log_head_bytes = 64 << 10;
  spec.log_tail_bytes = 256 << 10;
  const ExitRecord r = RunToEnd(spec);
  EXPECT_EQ(r.log_lost_bytes, 0u);
  EXPECT_EQ(r.log_bytes, LogEnd(Path("log")));
  const uint64_t head = RealFileSystem()->Stat(Path("log"))->size;
  EXPECT_LE(head, (64u << 10) + 256);
  uint64_t kept = 0;
  const auto names = RealFileSystem()->List(dir_);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (name.starts_with("log.")) {
      kept += RealFileSystem()->Stat(Path(name))->size;
    }
  }
  EXPECT_GE(kept, 256u << 10);
  EXPECT_LE(kept, (256u << 10) * 5 / 4);

  const std::vector<std::string> texts = Texts();
  EXPECT_EQ(texts.front(), "1");
  EXPECT_EQ(texts.back(), "50000");
  int steps = 0;
  int last = 0;
  for (const std::string& text : texts) {
    const int number = std::stoi(text);
    if (number != last + 1) ++steps;
    last = number;
  }
  EXPECT_EQ(steps, 1);
  const StatusOr<LogChunk> chunk = ReadLog(Path("log"), head, 1000);
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_GT(chunk->gap, 0u);
  EXPECT_EQ(chunk->offset, head + chunk->gap);
  EXPECT_EQ(head + chunk->gap + kept, r.log_bytes);
}

TEST_F(ShimLogTest, ALogGoesOnAfterItsLastWholeLineWhenAskedTo) {
  RunToEnd(Spec("echo one"));
  std::ofstream(Path("log"), std::ios::app) << "2026-01-31T12:0";
  ShimSpec spec = Spec("echo two");
  spec.log_append = true;
  const ExitRecord r = RunToEnd(spec);
  EXPECT_THAT(Texts(), ElementsAre("one", "two"));
  EXPECT_EQ(r.log_bytes, LogEnd(Path("log")));
}

TEST_F(ShimLogTest, SegmentsGoOnToo) {
  ShimSpec spec = Spec("seq 1 20000");
  spec.log_head_bytes = 64 << 10;
  spec.log_tail_bytes = 256 << 10;
  const ExitRecord first = RunToEnd(spec);
  ASSERT_GT(first.log_bytes, uint64_t{512} << 10);
  spec = Spec("seq 20001 40000");
  spec.log_head_bytes = 64 << 10;
  spec.log_tail_bytes = 256 << 10;
  spec.log_append = true;
  const ExitRecord second = RunToEnd(spec);
  EXPECT_GT(second.log_bytes, first.log_bytes + (uint64_t{512} << 10));
  EXPECT_EQ(second.log_bytes, LogEnd(Path("log")));
  // Of the tail's segments the old ones are gone, and the newest line is here.
  size_t segments = 0;
  const auto names = RealFileSystem()->List(dir_);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    segments += name.starts_with("log.");
  }
  EXPECT_LE(segments, static_cast<size_t>(task::kTailSegments) + 1);
  const auto chunk = ReadLog(Path("log"), second.log_bytes - 100, 1000);
  ASSERT_TRUE(chunk.ok());
  EXPECT_THAT(chunk->bytes, HasSubstr(" 40000\n"));
}

TEST_F(ShimLogTest, SegmentsOfAnEarlierLogAreSweptAway) {
  std::ofstream(Path("log")) << "old\n";
  std::ofstream(Path("log.00000000000000000004")) << "old\n";
  RunToEnd(Spec("echo new"));
  EXPECT_THAT(Texts(), ElementsAre("new"));
}

// A small file system of its own for the log, while it lives.
class FullDiskTest : public ShimLogTest {
 protected:
  void SetUp() override {
    ShimLogTest::SetUp();
    std::filesystem::create_directories(Path("disk"));
    mounted_ =
        ::mount("tmpfs", Path("disk").c_str(), "tmpfs", 0, "size=256k") == 0;
    if (!mounted_) GTEST_SKIP() << "needs root, to mount a small disk";
  }
  void TearDown() override {
    if (mounted_) ::umount2(Path("disk").c_str(), MNT_DETACH);
    ShimLogTest::TearDown();
  }
  void Fill() {
    std::ofstream file(Path("disk/filler"), std::ios::app);
    while (file.put('x') && file.flush()) {
    }
  }
  void Free() { std::filesystem::remove(Path("disk/filler")); }
  // The log as a reader that follows it takes it.
  void Follow() {
    for (;;) {
      const auto chunk = ReadLog(Path("disk/log"), offset_, 1 << 20);
      if (!chunk.ok() || chunk->bytes.empty()) return;
      EXPECT_EQ(chunk->gap, 0u);
      offset_ = chunk->next_offset;
      read_ += chunk->bytes;
    }
  }
  int Gaps() const {
    int count = 0;
    for (size_t at = 0; (at = read_.find(" bytes of output were lost: No space "
                                         "left on device\n",
                                         at)) != std::string::npos;
         ++at) {
      ++count;
    }
    return count;
  }
  // How many bytes the lines of gaps stand for.
  uint64_t Lost() const {
    uint64_t bytes = 0;
    constexpr std::string_view kStart = "lockstep: ";
    for (size_t at = 0; (at = read_.find(kStart, at)) != std::string::npos;) {
      at += kStart.size();
      bytes += std::stoull(read_.substr(at));
    }
    return bytes;
  }
  // "line N of the output", all as long.
  std::set<int> Lines() const {
    std::set<int> lines;
    for (size_t at = 0; (at = read_.find("line ", at)) != std::string::npos;) {
      at += 5;
      EXPECT_TRUE(lines.insert(std::stoi(read_.substr(at))).second) << "twice";
    }
    return lines;
  }
  bool mounted_ = false;
  uint64_t offset_ = 0;
  std::string read_;
};

// The rank is silent when there is space again, and ends later.
TEST_F(FullDiskTest, WhatWasLostIsSaidOnceThereIsSpace) {
  if (!mounted_) return;
  ShimSpec spec = Spec(
      "i=100; while [ $i -lt 250 ]; do echo line $i; i=$((i+1)); "
      "[ $i -eq 130 ] && while [ ! -e full ]; do sleep 0.01; done; "
      "[ $i -gt 130 ] && sleep 0.002; done; echo said >said; "
      "while [ ! -e end ]; do sleep 0.01; done; echo last");
  spec.log_path = Path("disk/log");
  Start(spec);
  ASSERT_TRUE(Eventually([&] {
    Follow();
    return Lines().size() == 30;
  }));
  Fill();
  std::ofstream(Path("full")) << "x";
  ASSERT_TRUE(Eventually([&] {
    Follow();
    return std::filesystem::exists(Path("said"));
  }));
  EXPECT_LT(Lines().size(), 150u) << "the disk was not full";
  Free();
  ASSERT_TRUE(Eventually([&] {
    Follow();
    return Gaps() > 0;
  })) << read_;
  std::ofstream(Path("end")) << "x";
  ASSERT_TRUE(Eventually([&] {
    Follow();
    return read_.ends_with(" last\n");
  })) << read_;
  // Nothing is missing that is not said.
  const size_t missing = 150 - Lines().size();
  const size_t line = read_.find('\n') + 1;  // All are as long.
  EXPECT_GT(missing, 0u);
  EXPECT_EQ(Lost(), missing * line) << read_;
}

// Also where the rank ends before there is space.
TEST_F(FullDiskTest, WhatWasLostAtTheEndIsSaidWithTheExit) {
  if (!mounted_) return;
  ShimSpec spec = Spec(
      "echo line 100; while [ ! -e full ]; do sleep 0.01; done; "
      "i=101; while [ $i -lt 250 ]; do echo line $i; i=$((i+1)); done");
  spec.log_path = Path("disk/log");
  spec.exit_record_path = Path("disk/exit");
  Start(spec);
  ASSERT_TRUE(Eventually([&] {
    Follow();
    return Lines().size() == 1;
  }));
  Fill();
  std::ofstream(Path("full")) << "x";
  ASSERT_TRUE(Eventually([&] {
    // What a page had left may still be filled.
    Fill();
    const auto tried = RealFileSystem()->Read(Path("stderr"), 1 << 20);
    return tried.ok() && !tried->empty();
  })) << "the exit cannot be recorded";
  Free();
  ASSERT_TRUE(Eventually([&] {
    Follow();
    return Gaps() > 0 && std::filesystem::exists(Path("disk/exit"));
  })) << read_;
  const size_t line = read_.find('\n') + 1;
  EXPECT_EQ(Lost(), (150 - Lines().size()) * line) << read_;
}

}  // namespace
}  // namespace lockstep::worker::shim
