#include <gmock/gmock.h>

#include "common/base/log_line.h"
#include "tests/service/fixture.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class LogStreamTest : public ServiceTest {
 protected:
  // A job of two ranks on one node, running.
  void SetUp() override {
    ServiceTest::SetUp();
    daemon_ = std::make_unique<DaemonStream>(Worker("a"));
    ASSERT_TRUE(daemon_->Register("a"));
    MustSubmit("j", 2);
    status_ = RunOn(daemon_.get(), "j");
  }
  void TearDown() override {
    daemon_.reset();
    ServiceTest::TearDown();
  }

  // Seconds after the start.
  static std::string Line(int64_t second, const std::string& text,
                          bool full = true, bool err = false) {
    std::string line;
    cri::AppendLogLine(
        {(1000 + second) * 1'000'000'000,
         err ? cri::LogStream::kStderr : cri::LogStream::kStdout, full, text},
        &line);
    return line;
  }
  void Write(int32_t rank, const std::string& bytes, bool end = false,
             Generation generation = 1) {
    uint64_t& offset = offsets_[{rank, generation}];
    const LogAckInfo ack =
        daemon_->SendLog({"j", "uid1", generation, rank, offset, bytes, end});
    offset += bytes.size();
    EXPECT_EQ(ack.offset, offset);
  }

  struct Reader {
    Reader(const std::shared_ptr<grpc::Channel>& channel,
           const v1::StreamLogsRequest& request)
        : stub(v1::JobService::NewStub(channel)), context(Context()) {
      reader = stub->StreamLogs(context.get(), request);
    }
    ~Reader() {
      context->TryCancel();
      (void)End();
    }
    // The next line; nullopt at the end.
    std::optional<v1::LogLine> Next() {
      while (lines.empty()) {
        v1::StreamLogsResponse response;
        if (!reader->Read(&response)) return std::nullopt;
        for (const v1::LogLine& line : response.lines()) lines.push_back(line);
      }
      const v1::LogLine line = lines.front();
      lines.pop_front();
      return line;
    }
    Status End() {
      if (end) return *end;
      while (Next()) {
      }
      end = FromGrpc(reader->Finish());
      return *end;
    }
    std::unique_ptr<v1::JobService::Stub> stub;
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<v1::StreamLogsResponse>> reader;
    std::deque<v1::LogLine> lines;
    std::optional<Status> end;
  };
  std::unique_ptr<Reader> Start(v1::StreamLogsRequest request) {
    if (request.name().empty()) request.set_name("j");
    return std::make_unique<Reader>(User("viv", UserRole::kViewer), request);
  }
  std::vector<std::string> All(const v1::StreamLogsRequest& request = {}) {
    const auto reader = Start(request);
    std::vector<std::string> lines;
    while (const auto line = reader->Next()) {
      lines.push_back(fmt::format("{}:{}", line->rank(), line->text()));
    }
    EXPECT_TRUE(reader->End().ok()) << reader->End().ToString();
    return lines;
  }
  Status Refusal(const v1::StreamLogsRequest& request) {
    return Start(request)->End();
  }

  std::unique_ptr<DaemonStream> daemon_;
  GangStatus status_;
  std::map<std::pair<int32_t, Generation>, uint64_t> offsets_;
};

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

// A host's clock that steps back does not change the order of a rank's lines.
TEST_F(LogStreamTest, ARanksLinesKeepTheirOrder) {
  Write(0, Line(5, "a") + Line(1, "b") + Line(6, "c"));
  Write(1, Line(4, "x") + Line(7, "y"));
  EXPECT_THAT(All(), ElementsAre("1:x", "0:a", "0:b", "0:c", "1:y"));
}

// What one host says a moment later than another, but wrote earlier, comes
// first all the same.
TEST_F(LogStreamTest, FollowingHoldsBackWhatIsNew) {
  const int64_t now = ToUnixNanos(SystemClock().Now().wall) / 1'000'000'000;
  v1::StreamLogsRequest request;
  request.set_follow(true);
  const auto reader = Start(request);
  // Of lines in the future nobody knows how late the others are.
  Write(0, Line(now - 1000 + 60, "later"));
  Write(1, Line(now - 1000 + 59, "earlier"));
  EXPECT_EQ(reader->Next()->text(), "earlier");
  EXPECT_EQ(reader->Next()->text(), "later");
  // A rank that is quiet holds nobody up for long.
  const MonoTime start = SystemClock().Now().mono;
  Write(0, Line(now - 1000 + 61, "alone"));
  EXPECT_EQ(reader->Next()->text(), "alone");
  EXPECT_LT(SystemClock().Now().mono - start, 10s);
}

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

TEST_F(LogStreamTest, TailIsOfEachRank) {
  for (int i = 0; i < 10; ++i) {
    Write(0, Line(i, "a" + std::to_string(i)));
    Write(1, Line(i, "b" + std::to_string(i)));
  }
  v1::StreamLogsRequest request;
  request.set_tail(2);
  EXPECT_THAT(All(request), ElementsAre("0:a8", "1:b8", "0:a9", "1:b9"));
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

TEST_F(LogStreamTest, LineThatIsStillBeingWrittenWaits) {
  const std::string line = Line(1, "whole");
  Write(0, line.substr(0, 10));
  EXPECT_THAT(All(), IsEmpty());
  Write(0, line.substr(10));
  EXPECT_THAT(All(), ElementsAre("0:whole"));
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

TEST_F(LogStreamTest, FollowGoesOnToTheEnd) {
  Write(0, Line(1, "before"));
  v1::StreamLogsRequest request;
  request.set_follow(true);
  const auto reader = Start(request);
  EXPECT_EQ(reader->Next()->text(), "before");
  Write(1, Line(2, "while"), true);
  EXPECT_EQ(reader->Next()->text(), "while");
  End(daemon_.get(), status_);
  // Its last words come after the end of the job.
  Write(0, Line(3, "last"), true);
  EXPECT_EQ(reader->Next()->text(), "last");
  EXPECT_FALSE(reader->Next());
  EXPECT_TRUE(reader->End().ok());
}

TEST_F(LogStreamTest, ALogThatIsTakenAwayIsNoEnd) {
  Write(0, Line(1, "first"));
  v1::StreamLogsRequest request;
  request.set_follow(true);
  const auto reader = Start(request);
  EXPECT_EQ(reader->Next()->text(), "first");
  logs_->Remove("uid1");
  EXPECT_FALSE(reader->Next());
  EXPECT_EQ(reader->End().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(reader->End()),
              HasSubstr("job j: the log of rank 0 g1 was removed"));
}

TEST_F(LogStreamTest, LogsWithoutEndAreNotWaitedForForEver) {
  Write(0, Line(1, "x"));
  End(daemon_.get(), status_);
  clock_.Advance(31s);
  v1::StreamLogsRequest request;
  request.set_follow(true);
  EXPECT_THAT(All(request), ElementsAre("0:x"));
}

TEST_F(LogStreamTest, FollowOfAQueuedJobWaitsForIt) {
  v1::JobSpec spec = Spec("k");
  spec.mutable_roles(0)->mutable_resources()->set_cpus(4);
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  v1::StreamLogsRequest request;
  request.set_name("k");
  request.set_follow(true);
  const auto reader = Start(request);
  End(daemon_.get(), status_);
  const GangStatus status = RunOn(daemon_.get(), "k");
  daemon_->SendLog({"k", "uid2", 1, 0, 0, Line(1, "hello"), true});
  const auto line = reader->Next();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->text(), "hello");
  End(daemon_.get(), status);
  EXPECT_TRUE(reader->End().ok());
}

TEST_F(LogStreamTest, FollowOfAJobThatNeverStartedEndsWithIt) {
  v1::JobSpec spec = Spec("k");
  spec.mutable_roles(0)->mutable_resources()->set_cpus(4);
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  v1::StreamLogsRequest request;
  request.set_name("k");
  request.set_follow(true);
  const auto reader = Start(request);
  ASSERT_TRUE(Cancel("k", "c").ok());
  EXPECT_FALSE(reader->Next());
  EXPECT_TRUE(reader->End().ok());
}

TEST_F(LogStreamTest, AttemptsAreTold) {
  Write(0, Line(1, "first"), true);
  Write(1, "", true);
  GangStatus status = status_;
  for (RankStatus& rank : status.ranks) {
    rank.state = RankState::kExited;
    rank.exit.emplace();
    rank.exit->value = 9;
  }
  status.phase = GangPhase::kStopped;
  ASSERT_TRUE(daemon_->Report(status));
  // It is told to stop, and with that gone, to prepare again.
  Assignment next = daemon_->NextAssignment();
  while (next.goal != Goal::kPrepare) next = daemon_->NextAssignment();
  EXPECT_EQ(next.generation, 2u);
  Write(0, Line(5, "second"), false, 2);
  EXPECT_THAT(All(), ElementsAre("0:first", "0:second"));
  v1::StreamLogsRequest request;
  request.set_attempt(1);
  EXPECT_THAT(All(request), ElementsAre("0:first"));
  request.set_attempt(2);
  EXPECT_THAT(All(request), ElementsAre("0:second"));
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
  request.set_name("ghost");
  EXPECT_EQ(Refusal(request).code(), StatusCode::kNotFound);
  request.set_name("a/b");
  EXPECT_EQ(Refusal(request).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
