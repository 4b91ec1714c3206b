// The log that a shim writes, and its reading.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/log_line.h"
#include "worker/shim/log_reader.h"
#include "worker/shim/shim_fixture.h"
#include "worker/task/log_files.h"

namespace lockstep {
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

}  // namespace
}  // namespace lockstep
