// What a reader of logs is sent.
#include <gmock/gmock.h>

#include "tests/service/log_stream_fixture.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(LogStreamTest, WhatIsThereByTimeOverRanks) {
  Write(0, Line(1, "one") + Line(4, "four"));
  Write(1, Line(2, "two") + Line(3, "three"));
  EXPECT_THAT(All(), ElementsAre("0:one", "1:two", "1:three", "0:four"));
}

// More than is read of one log at a time: the order is of all of it.
TEST_F(LogStreamTest, LongLogsAreMergedByTime) {
  constexpr int kLines = 6000;
  const std::string padding(200, 'x');
  std::string even;
  std::string odd;
  for (int i = 0; i < kLines; ++i) {
    (i % 2 == 0 ? even : odd) += Line(i, padding);
  }
  for (size_t at = 0; at < even.size(); at += 256 << 10) {
    Write(0, even.substr(at, 256 << 10));
  }
  for (size_t at = 0; at < odd.size(); at += 256 << 10) {
    Write(1, odd.substr(at, 256 << 10));
  }
  const auto reader = Start({});
  for (int i = 0; i < kLines; ++i) {
    const auto line = reader->Next();
    ASSERT_TRUE(line) << i;
    ASSERT_EQ(line->time().seconds(), 1000 + i);
    ASSERT_EQ(line->rank(), i % 2);
  }
}

// Far more than gRPC takes of a stream that is not read.
class SlowReaderTest : public LogStreamTest {
 protected:
  void WriteMuch() {
    const std::string padding(1000, 'x');
    for (int i = 0; i < 32; ++i) {
      std::string lines;
      while (lines.size() < (250 << 10)) lines += Line(i, padding);
      Write(0, lines);
    }
  }
};

TEST_F(SlowReaderTest, AReaderThatTakesNothingForAMinuteIsToldSo) {
  WriteMuch();
  v1::StreamLogsRequest request;
  request.set_follow(true);
  const auto reader = Start(request);
  ASSERT_TRUE(reader->Next());
  // Its time passes for the sweep alone. A message that is on its way just now
  // counts, too: what is the last is found in the end.
  const MonoTime deadline = MonotonicNow() + kPatience;
  EXPECT_EQ(readers_->EndStalled(MonotonicNow()), 0);
  while (readers_->EndStalled(MonotonicNow() + std::chrono::seconds(61)) == 0) {
    ASSERT_LT(MonotonicNow(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Status end = reader->End();
  EXPECT_EQ(end.code(), StatusCode::kResourceExhausted) << Message(end);
  EXPECT_THAT(Message(end), HasSubstr("the reader was idle for"));
}

class SmallReaderTest : public SlowReaderTest {
 protected:
  SmallReaderTest() { reader_limits_.caller_bytes = 1 << 20; }
};

TEST_F(SmallReaderTest, WhatWaitsForTheReadersOfOneCallerIsBounded) {
  Write(1, Line(0, "short"));
  v1::StreamLogsRequest request;
  request.add_ranks(1);
  EXPECT_THAT(Start(request)->Next()->text(), "short");
  WriteMuch();
  const Status refused = Refusal({});
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "READERS_TOO_SLOW");
}

// A host's clock that steps back does not change the order of a rank's lines.
TEST_F(LogStreamTest, ARanksLinesKeepTheirOrder) {
  Write(0, Line(5, "a") + Line(1, "b") + Line(6, "c"));
  Write(1, Line(4, "x") + Line(7, "y"));
  EXPECT_THAT(All(), ElementsAre("1:x", "0:a", "0:b", "0:c", "1:y"));
}

// What one host says a moment later than another, but wrote earlier, comes
// first all the same.
TEST_F(LogStreamTest, LinesSayWhoAndWhen) {
  Write(1, Line(7, "text", true, true));
  const auto reader = Start({});
  const auto line = reader->Next();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->rank(), 1);
  EXPECT_EQ(line->attempt(), 1);
  EXPECT_EQ(line->stream(), "stderr");
  EXPECT_EQ(line->time().seconds(), 1007);
  EXPECT_EQ(line->task_type(), v1::TASK_TYPE_WORKER);
  EXPECT_EQ(line->task_index(), 1);
}

TEST_F(LogStreamTest, RanksAreChosen) {
  Write(0, Line(1, "zero"));
  Write(1, Line(2, "one"));
  v1::StreamLogsRequest request;
  request.add_ranks(1);
  EXPECT_THAT(All(request), ElementsAre("1:one"));
  request.set_ranks(0, 9);
  const Status status = Refusal(request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("ranks 0 to 1, not 9"));
  request.clear_ranks();
  request.set_attempt(7);
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("attempt"));
}

TEST_F(LogStreamTest, LinesSayTheirTaskAndHowBadTheyAre) {
  Write(0, Line(1, "step 1") + Line(2, "WARNING: slow", true, true));
  Write(1, Line(3, "Traceback (most recent call last):", true, true) +
               Line(4, "step 2") + Line(5, "  File x.py", true, true) +
               Line(6, "Oops: x", true, true) + Line(7, "on", true, true));
  const auto reader = Start({});
  std::vector<std::string> lines;
  while (const auto line = reader->Next()) {
    lines.push_back(line->task() + " " + v1::Severity_Name(line->severity()));
  }
  EXPECT_THAT(lines, ElementsAre("worker-replica-0 SEVERITY_INFO",
                                 "worker-replica-0 SEVERITY_WARNING",
                                 "worker-replica-1 SEVERITY_ERROR",
                                 // The other stream is not in the traceback.
                                 "worker-replica-1 SEVERITY_INFO",
                                 "worker-replica-1 SEVERITY_ERROR",
                                 "worker-replica-1 SEVERITY_ERROR",
                                 "worker-replica-1 SEVERITY_INFO"));
}

TEST_F(LogStreamTest, TasksAreChosenByTheirNames) {
  Write(0, Line(1, "zero"));
  Write(1, Line(2, "one"));
  v1::StreamLogsRequest request;
  request.add_tasks("worker-replica-1");
  EXPECT_THAT(All(request), ElementsAre("1:one"));
  request.add_tasks("worker-replica-0");
  EXPECT_THAT(All(request), ElementsAre("0:zero", "1:one"));
  request.mutable_tasks()->RemoveLast();
  for (const char* name :
       {"worker-replica-2", "worker-replica-", "ps-replica-0",
        "worker-replica-00", "x", "worker-replica-99999999999999999999"}) {
    request.set_tasks(0, name);
    EXPECT_THAT(Message(Refusal(request)),
                HasSubstr("job j has worker-replica-0 to 1 and service, not"))
        << name;
  }
}

TEST_F(LogStreamTest, GrepSeverityAndUntil) {
  Write(0, Line(1, "loss 0.5") + Line(2, "ERROR: loss is nan") +
               Line(3, "WARNING: slow") + Line(4, "ERROR: late"));
  v1::StreamLogsRequest request;
  request.set_grep("loss .*");
  EXPECT_THAT(All(request), ElementsAre("0:loss 0.5", "0:ERROR: loss is nan"));
  request.set_min_severity(v1::SEVERITY_WARNING);
  EXPECT_THAT(All(request), ElementsAre("0:ERROR: loss is nan"));
  request.clear_grep();
  request.mutable_until()->set_seconds(1003);
  EXPECT_THAT(All(request),
              ElementsAre("0:ERROR: loss is nan", "0:WARNING: slow"));
  // Of what is wanted.
  request.set_tail(1);
  EXPECT_THAT(All(request), ElementsAre("0:WARNING: slow"));
}

// Nothing that comes now can be of then.
// What is in between is read and dropped, whatever its size.
TEST_F(LogStreamTest, RareLineOfALongLog) {
  std::string bytes;
  for (int piece = 0; piece < 40; ++piece) {
    bytes.clear();
    for (int i = 0; i < 1000; ++i) bytes += Line(1, std::string(200, 'x'));
    if (piece % 20 == 7) bytes += Line(1, "needle " + std::to_string(piece));
    Write(0, bytes);
  }
  v1::StreamLogsRequest request;
  request.set_grep("^needle");
  EXPECT_THAT(All(request), ElementsAre("0:needle 7", "0:needle 27"));
}

// A daemon that sends no lines at all fills no memory.
TEST_F(LogStreamTest, BytesWithoutAnEndOfLineAreCut) {
  for (int i = 0; i < 10; ++i) Write(0, std::string(100 << 10, 'x'));
  const auto reader = Start({});
  size_t size = 0;
  while (const auto line = reader->Next()) {
    EXPECT_LE(line->text().size(), 1u << 20);
    size += line->text().size();
  }
  EXPECT_GE(size, 500u << 10);
}

TEST_F(LogStreamTest, EventsAreLinesOfTheService) {
  Write(0, Line(1, "x"));
  v1::StreamLogsRequest request;
  request.set_include_events(true);
  request.set_follow(true);
  auto reader = Start(request);
  bool seen = false;
  while (!seen) {
    const auto line = reader->Next();
    ASSERT_TRUE(line);
    if (line->task() == "service") {
      EXPECT_EQ(line->rank(), -1);
      EXPECT_FALSE(line->text().empty());
      EXPECT_GT(line->time().seconds(), 0);
      EXPECT_NE(line->severity(), v1::SEVERITY_UNSPECIFIED);
      seen = true;
    }
  }
  Write(0, "", true);
  Write(1, "", true);
  End(daemon_.get(), status_);
  EXPECT_TRUE(reader->End().ok());
  // Each event once, although each look at the job shows them all.
  const auto job = Get("j");
  ASSERT_TRUE(job.ok());
  request.clear_include_events();
  request.add_tasks("service");
  std::vector<std::string> events;
  for (const v1::Event& event : job->events()) {
    events.push_back("-1:" + event.message());
  }
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(All(request), events);
  // They are chosen as other lines are.
  request.set_min_severity(v1::SEVERITY_CRITICAL);
  EXPECT_THAT(All(request), IsEmpty());
}

TEST_F(LogStreamTest, TailIsOfEachRank) {
  for (int i = 0; i < 10; ++i) {
    Write(0, Line(i, "a" + std::to_string(i)));
    Write(1, Line(i, "b" + std::to_string(i)));
  }
  v1::StreamLogsRequest request;
  request.set_tail(2);
  EXPECT_THAT(All(request), ElementsAre("0:a8", "1:b8", "0:a9", "1:b9"));
}

// Many long lines: as many as there is room for, and a line that says so.
TEST_F(LogStreamTest, TailHasNoMoreBytesThanThereIsRoomFor) {
  constexpr int kLines = 2600;
  const std::string text(16'000, 'x');
  std::string bytes;
  for (int i = 0; i < kLines; ++i) {
    bytes += Line(i, text);
    if (bytes.size() < 240'000 && i + 1 < kLines) continue;
    Write(0, bytes);
    bytes.clear();
  }
  Write(1, Line(kLines, "other"));
  v1::StreamLogsRequest request;
  request.set_tail(100'000);
  const auto reader = Start(request);
  const auto first = reader->Next();
  ASSERT_TRUE(first);
  EXPECT_THAT(first->text(), HasSubstr("bytes before this are left out"));
  int lines = 0;
  while (const auto line = reader->Next()) ++lines;
  // Half of 64 MiB is this log's; and the other's line.
  EXPECT_GT(lines, 1900);
  EXPECT_LT(lines, 2200);
  request.set_tail(100);
  EXPECT_THAT(All(request), SizeIs(101));
}

TEST_F(LogStreamTest, SinceIncludesItsMoment) {
  for (int i = 0; i < 5; ++i) Write(0, Line(i, std::to_string(i)));
  v1::StreamLogsRequest request;
  request.mutable_since()->set_seconds(1003);
  EXPECT_THAT(All(request), ElementsAre("0:3", "0:4"));
}

TEST_F(LogStreamTest, PartsOfALineAreJoinedPerStream) {
  Write(0, Line(1, "out1 ", false) + Line(1, "err1 ", false, true) +
               Line(2, "out2") + Line(3, "err2", true, true));
  EXPECT_THAT(All(), ElementsAre("0:out1 out2", "0:err1 err2"));
}

TEST_F(LogStreamTest, EndlessLineIsCut) {
  std::string bytes;
  for (int i = 0; i < 10; ++i) {
    bytes += Line(1, std::string(cri::kMaxLogText, 'x'), false);
  }
  for (int i = 0; i < 8; ++i) Write(0, bytes);
  const auto reader = Start({});
  size_t size = 0;
  int lines = 0;
  while (const auto line = reader->Next()) {
    EXPECT_LE(line->text().size(), 1u << 20);
    size += line->text().size();
    ++lines;
  }
  EXPECT_TRUE(reader->End().ok());
  EXPECT_GE(lines, 2);
  EXPECT_GE(size, 1u << 20);
}

TEST_F(LogStreamTest, BytesThatAreNoTextArePassedOn) {
  const std::string bytes("\xff\xfe\0x", 4);
  Write(0, Line(1, bytes) + "no time at all\n");
  const auto reader = Start({});
  std::vector<std::string> texts;
  while (const auto line = reader->Next()) texts.push_back(line->text());
  EXPECT_THAT(texts, testing::UnorderedElementsAre(bytes, "no time at all"));
}

TEST_F(LogStreamTest, MoreThanOneMessage) {
  std::string bytes;
  int lines = 0;
  for (int piece = 0; piece < 20; ++piece) {
    bytes.clear();
    for (int i = 0; i < 1000; ++i) {
      bytes += Line(++lines, std::string(150, 'x'));
    }
    Write(0, bytes);
  }
  EXPECT_THAT(All(), SizeIs(lines));
}

TEST_F(LogStreamTest, RefusesWhatMakesNoSense) {
  v1::StreamLogsRequest request;
  request.set_tail(-1);
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("tail"));
  request.set_tail(int64_t{1} << 60);
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("tail"));
  request.clear_tail();
  request.set_attempt(-1);
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("attempt"));
  request.clear_attempt();
  request.add_ranks(-1);
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("ranks"));
  request.clear_ranks();
  request.mutable_since()->set_seconds(int64_t{1} << 60);
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("since"));
  request.clear_since();
  request.set_grep("loss(");
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("grep: \"loss(\""));
  request.clear_grep();
  request.set_min_severity(static_cast<v1::Severity>(99));
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("min_severity"));
  request.clear_min_severity();
  request.mutable_since()->set_seconds(20);
  request.mutable_until()->set_seconds(10);
  EXPECT_THAT(Message(Refusal(request)), HasSubstr("until"));
  request.clear_since();
  request.clear_until();
  request.set_name("ghost");
  EXPECT_EQ(Refusal(request).code(), StatusCode::kNotFound);
  request.set_name("a/b");
  EXPECT_EQ(Refusal(request).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::server
