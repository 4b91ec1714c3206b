// Readers of logs that go on.
#include <gmock/gmock.h>

#include "tests/service/log_stream_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(LogStreamTest, FollowingHoldsBackWhatIsNew) {
  const int64_t now = ToUnixNanos(SystemClock().Now().wall) / 1'000'000'000;
  v1::StreamLogsRequest request;
  request.set_follow(true);
  const auto reader = Start(request);
  // Of lines in the future nobody knows how late the others are. They are held
  // back for 300 ms: a machine that takes longer is given another pair.
  const MonoTime deadline = MonotonicNow() + kPatience;
  int64_t second = now - 1000 + 60;
  for (bool prompt = false; !prompt; second += 2) {
    const MonoTime start = MonotonicNow();
    ASSERT_LT(start, deadline);
    Write(0, Line(second + 1, "later"));
    Write(1, Line(second, "earlier"));
    prompt = MonotonicNow() - start < 250ms;
    const auto first = reader->Next();
    const auto then = reader->Next();
    ASSERT_TRUE(first && then);
    if (!prompt) continue;
    EXPECT_EQ(first->text(), "earlier");
    EXPECT_EQ(then->text(), "later");
  }
  // A rank that is quiet holds nobody up for long.
  const MonoTime start = MonotonicNow();
  Write(0, Line(second, "alone"));
  EXPECT_EQ(reader->Next()->text(), "alone");
  EXPECT_LT(MonotonicNow() - start, 10s);
}

TEST_F(LogStreamTest, FollowUntilATimeThatIsOverEnds) {
  Write(0, Line(1, "x"));
  v1::StreamLogsRequest request;
  request.set_follow(true);
  request.mutable_until()->set_seconds(2000);
  EXPECT_THAT(All(request), ElementsAre("0:x"));
}

TEST_F(LogStreamTest, LineThatIsStillBeingWrittenWaits) {
  const std::string line = Line(1, "whole");
  Write(0, line.substr(0, 10));
  EXPECT_THAT(All(), IsEmpty());
  Write(0, line.substr(10));
  EXPECT_THAT(All(), ElementsAre("0:whole"));
}

TEST_F(LogStreamTest, ALineThatIsRedrawnIsSentAsItIsWhenAskedFor) {
  v1::StreamLogsRequest request;
  request.set_follow(true);
  const auto plain = Start(request);
  request.set_partial_lines(true);
  const auto live = Start(request);
  const auto next = [&] {
    const auto line = live->Next();
    return line ? fmt::format("{} {}{}", line->stream(), line->text(),
                              line->partial() ? " ..." : "")
                : "the end";
  };
  Write(0, Line(1, "10%", false));
  EXPECT_EQ(next(), "stdout 10% ...");
  Write(0, Line(2, "\r20%", false));
  EXPECT_EQ(next(), "stdout 20% ...");
  Write(0, Line(3, "prompt", false, /*err=*/true));
  EXPECT_EQ(next(), "stderr prompt ...");
  Write(0, Line(4, "\r100%"));
  EXPECT_EQ(next(), "stdout 100%");
  Write(0, Line(5, "!", true, /*err=*/true), true);
  EXPECT_EQ(next(), "stderr prompt!");
  Write(1, "", true);
  End(daemon_.get(), status_);
  EXPECT_EQ(next(), "the end");
  EXPECT_EQ(plain->Next()->text(), "100%");
  EXPECT_EQ(plain->Next()->text(), "prompt!");
  EXPECT_FALSE(plain->Next());
  EXPECT_THAT(All(), ElementsAre("0:100%", "0:prompt!"));
}

TEST_F(LogStreamTest, StatesOfALineAreFilteredAsLinesAre) {
  v1::StreamLogsRequest request;
  request.set_follow(true);
  request.set_partial_lines(true);
  request.set_grep("loss");
  const auto reader = Start(request);
  Write(0, Line(1, "no match", false));
  Write(0, Line(2, "\rloss 2", false));
  const auto line = reader->Next();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->text(), "loss 2");
  EXPECT_TRUE(line->partial());
  // Nor is a long line sent again with each of its parts.
  const std::string part(cri::kMaxLogText, '-');
  Write(0, Line(3, part, false) + Line(4, part, false));
  Write(0, Line(5, "."));
  const auto whole = reader->Next();
  ASSERT_TRUE(whole);
  EXPECT_FALSE(whole->partial());
  EXPECT_EQ(whole->text().size(),
            std::string("loss 2.").size() + 2 * part.size());
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

TEST_F(LogStreamTest, AWorkerThatIsStartedAgainAloneIsFollowed) {
  v1::JobSpec spec = Spec("k", 2);
  spec.set_restart_worker_alone(true);
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  RunOn(daemon_.get(), "k");
  v1::StreamLogsRequest request;
  request.set_name("k");
  request.set_follow(true);
  const auto reader = Start(request);
  const auto expect = [&](const std::string& text) {
    const auto line = reader->Next();
    ASSERT_TRUE(line) << text;
    EXPECT_EQ(line->text(), text);
  };
  const std::string first = Line(1, "first process");
  daemon_->SendLog({"k", "uid2", 1, 1, 0, first, /*end=*/true});
  expect("first process");
  // By then it has been seen that the log has an end.
  daemon_->SendLog({"k", "uid2", 1, 0, 0, Line(2, "meanwhile"), false});
  expect("meanwhile");
  daemon_->SendLog({"k", "uid2", 1, 1, first.size(), Line(3, "second"), true});
  expect("second");
}

// What the process before said was its end; that of the next is on its way when
// the job ends.
TEST_F(LogStreamTest, LastWordsOfAWorkerThatWasStartedAgainAreWaitedFor) {
  v1::JobSpec spec = Spec("k", 2);
  spec.set_restart_worker_alone(true);
  v1::RoleSpec* ps = spec.add_roles();
  ps->set_type(v1::TASK_TYPE_PS);
  ps->set_count(1);
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  GangStatus status = RunOn(daemon_.get(), "k");
  const std::string first = Line(1, "first process");
  daemon_->SendLog({"k", "uid2", 1, 1, 0, first, /*end=*/true});
  for (const int32_t rank : {0, 2}) {
    daemon_->SendLog({"k", "uid2", 1, rank, 0, Line(1, "x"), true});
  }
  RankStatus& worker = status.ranks[1];
  worker.state = RankState::kExited;
  worker.exit.emplace();
  worker.exit->value = 1;
  worker.exit->end_time = clock_.Now().wall;
  ASSERT_TRUE(daemon_->Report(status));
  // The order to start it again.
  (void)daemon_->NextAssignment();
  worker.exit.reset();
  worker.state = RankState::kStarted;
  worker.restarts = 1;
  ASSERT_TRUE(daemon_->Report(status));
  End(daemon_.get(), status);
  v1::StreamLogsRequest request;
  request.set_name("k");
  request.add_ranks(1);
  request.set_follow(true);
  const auto reader = Start(request);
  EXPECT_EQ(reader->Next()->text(), "first process");
  daemon_->SendLog({"k", "uid2", 1, 1, first.size(), Line(2, "last"), true});
  const auto line = reader->Next();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->text(), "last");
  EXPECT_FALSE(reader->Next());
  EXPECT_TRUE(reader->End().ok()) << reader->End().ToString();
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

}  // namespace
}  // namespace lockstep::server
