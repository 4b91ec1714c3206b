#include "worker/agent/stream/log_shipper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/log_line.h"
#include "worker/task/log_files.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// What the coordinator does with chunks.
struct Receiver {
  std::string bytes;
  bool end = false;

  LogAckInfo Take(const LogPiece& piece) {
    if (piece.offset <= bytes.size() &&
        piece.offset + piece.data.size() > bytes.size()) {
      bytes += piece.data.substr(bytes.size() - piece.offset);
      end = false;  // It goes on.
    }
    end = end || (piece.end && piece.offset <= bytes.size());
    return {piece.job, piece.generation, piece.rank, bytes.size(), end};
  }
};

class LogShipperTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-shipper-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    log_ = dir_ + "/log";
    options_.max_in_flight = 100'000;
    options_.chunk = 40'000;
    shipper_ = std::make_unique<LogShipper>(options_, RealFileSystem());
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  static std::string Lines(int count, int64_t from = 0) {
    std::string bytes;
    for (int i = 0; i < count; ++i) {
      const std::string text = "line " + std::to_string(from + i);
      cri::LogLine line;
      line.unix_nanos = 1'700'000'000'000'000'000 + i;
      line.text = text;
      cri::AppendLogLine(line, &bytes);
    }
    return bytes;
  }
  static void Write(const std::string& path, const std::string& bytes) {
    auto file = RealFileSystem()->OpenAppend(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append(bytes).ok());
  }
  // Ships until nothing is left; true when the end was acknowledged.
  bool Drain(LogShipper* shipper, Receiver* receiver) {
    for (int i = 0; i < 10'000; ++i) {
      const auto pieces = shipper->Take(now_);
      if (pieces.empty()) return shipper->Done(ref_);
      for (const LogPiece& piece : pieces) {
        shipper->OnAck(receiver->Take(piece), now_);
      }
    }
    ADD_FAILURE() << "it never ends";
    return false;
  }

  const RankRef ref_{{"job", 2}, 1};
  std::string dir_;
  std::string log_;
  LogShipperOptions options_;
  std::unique_ptr<LogShipper> shipper_;
  MonoTime now_{100s};
};

TEST_F(LogShipperTest, EveryByteArrivesAndThenTheEnd) {
  shipper_->Add(ref_, "uid", log_);
  EXPECT_THAT(shipper_->Take(now_), IsEmpty());  // No log yet.
  const std::string bytes = Lines(10'000);
  Write(log_, bytes);
  Receiver receiver;
  EXPECT_FALSE(Drain(shipper_.get(), &receiver));
  EXPECT_EQ(receiver.bytes, bytes);
  EXPECT_FALSE(receiver.end);
  shipper_->SetEnded(ref_);
  EXPECT_TRUE(Drain(shipper_.get(), &receiver));
  EXPECT_TRUE(receiver.end);
  EXPECT_EQ(shipper_->BytesSent(ref_), bytes.size());
}

TEST_F(LogShipperTest, ALogThatHadEndedGoesOn) {
  shipper_->Add(ref_, "uid", log_);
  Write(log_, Lines(100));
  shipper_->SetEnded(ref_);
  Receiver receiver;
  ASSERT_TRUE(Drain(shipper_.get(), &receiver));
  shipper_->SetGoesOn(ref_);
  EXPECT_FALSE(shipper_->Done(ref_));
  EXPECT_FALSE(Drain(shipper_.get(), &receiver));
  // An acknowledgement of the first end comes late.
  shipper_->OnAck({"job", 2, 1, receiver.bytes.size(), true}, now_);
  Write(log_, Lines(50, 100));
  EXPECT_FALSE(Drain(shipper_.get(), &receiver));
  EXPECT_EQ(receiver.bytes, Lines(100) + Lines(50, 100));
  EXPECT_FALSE(receiver.end);
  shipper_->SetEnded(ref_);
  EXPECT_TRUE(Drain(shipper_.get(), &receiver));
  EXPECT_TRUE(receiver.end);
  // The next daemon finds all of it there.
  LogShipper next(options_, RealFileSystem());
  next.Add(ref_, "uid", log_);
  next.SetEnded(ref_);
  EXPECT_TRUE(Drain(&next, &receiver));
}

// Its rank is away, and the coordinator asks for it again at once: on the same
// node, with a log of its own there.
TEST_F(LogShipperTest, ALogWhoseGangComesBackBeforeItsEndIsStoredGoesOn) {
  shipper_->Add(ref_, "uid", log_);
  Write(log_, Lines(100));
  shipper_->SetEnded(ref_);
  Receiver before;
  const auto pieces = shipper_->Take(now_);
  ASSERT_THAT(pieces, SizeIs(2));  // The end is under way.
  shipper_->OnAck(before.Take(pieces[0]), now_);
  shipper_->Add(ref_, "uid", log_);
  Write(log_, Lines(50, 100));
  Receiver after;
  EXPECT_FALSE(Drain(shipper_.get(), &after));
  EXPECT_EQ(after.bytes, Lines(100) + Lines(50, 100));
  EXPECT_FALSE(after.end);
  shipper_->SetEnded(ref_);
  EXPECT_TRUE(Drain(shipper_.get(), &after));
  EXPECT_TRUE(after.end);
}

TEST_F(LogShipperTest, WhatIsInFlightIsBounded) {
  Write(log_, Lines(10'000));
  shipper_->Add(ref_, "uid", log_);
  size_t sent = 0;
  for (const LogPiece& piece : shipper_->Take(now_)) {
    sent += piece.data.size();
    EXPECT_LE(piece.data.size(), kMaxLogChunk);
  }
  EXPECT_GE(sent, 60'000u);
  EXPECT_LE(sent, options_.max_in_flight + cri::kMaxLogLine);
  EXPECT_THAT(shipper_->Take(now_), IsEmpty());
}

TEST_F(LogShipperTest, ANewStreamSendsAgainFromWhatWasAcknowledged) {
  const std::string bytes = Lines(2000);
  Write(log_, bytes);
  shipper_->Add(ref_, "uid", log_);
  Receiver receiver;
  const auto first = shipper_->Take(now_);
  ASSERT_GE(first.size(), 2u);
  shipper_->OnAck(receiver.Take(first[0]), now_);
  shipper_->OnReconnect();  // first[1] is lost.
  const auto again = shipper_->Take(now_);
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0].offset, receiver.bytes.size());
  for (const LogPiece& piece : again) {
    shipper_->OnAck(receiver.Take(piece), now_);
  }
  shipper_->SetEnded(ref_);
  EXPECT_TRUE(Drain(shipper_.get(), &receiver));
  EXPECT_EQ(receiver.bytes, bytes);
}

TEST_F(LogShipperTest, ARestartedDaemonGoesOnWhereTheCoordinatorIs) {
  const std::string bytes = Lines(5000);
  Write(log_, bytes);
  Receiver receiver;
  receiver.bytes = bytes.substr(0, bytes.size() - 100);  // From before.
  shipper_->Add(ref_, "uid", log_);
  shipper_->SetEnded(ref_);
  EXPECT_TRUE(Drain(shipper_.get(), &receiver));
  EXPECT_EQ(receiver.bytes, bytes);
  // After the first answer nothing that is there is sent again.
  EXPECT_LT(shipper_->BytesSent(ref_), bytes.size());
}

TEST_F(LogShipperTest, WhatIsNotAcknowledgedInTimeIsSentAgain) {
  Write(log_, Lines(10));
  shipper_->Add(ref_, "uid", log_);
  EXPECT_THAT(shipper_->Take(now_), SizeIs(1));
  now_ += options_.ack_timeout;
  EXPECT_THAT(shipper_->Take(now_), IsEmpty());
  now_ += 1s;
  EXPECT_THAT(shipper_->Take(now_), SizeIs(1));
}

// The end of a log without bytes is a message like any other.
TEST_F(LogShipperTest, AnEndThatIsNotAcknowledgedIsSentAgain) {
  Write(log_, "");
  shipper_->Add(ref_, "uid", log_);
  shipper_->SetEnded(ref_);
  ASSERT_THAT(shipper_->Take(now_), SizeIs(1));
  // The daemon looks often.
  for (Duration passed{}; passed < options_.ack_timeout; passed += 1s) {
    now_ += 1s;
    EXPECT_THAT(shipper_->Take(now_), IsEmpty());
  }
  now_ += 1s;
  EXPECT_THAT(shipper_->Take(now_), SizeIs(1));
  EXPECT_FALSE(shipper_->Done(ref_));
  shipper_->SendAgain(ref_);
  Receiver receiver;
  EXPECT_TRUE(Drain(shipper_.get(), &receiver));
}

TEST_F(LogShipperTest, AGapIsALineAlsoForTheNextDaemon) {
  const std::string head = Lines(100);
  const std::string tail = Lines(100, 500);
  constexpr uint64_t kTailAt = 1'000'000;
  Write(log_, head);
  Write(task::SegmentPath(log_, kTailAt), tail);
  shipper_->Add(ref_, "uid", log_);
  Receiver receiver;
  EXPECT_FALSE(Drain(shipper_.get(), &receiver));
  EXPECT_EQ(receiver.bytes.substr(0, head.size()), head);
  EXPECT_THAT(receiver.bytes,
              HasSubstr(cri::LogGapText(kTailAt - head.size())));
  EXPECT_TRUE(receiver.bytes.ends_with(tail));
  const std::string so_far = receiver.bytes;
  EXPECT_EQ(shipper_->BytesDropped(ref_), kTailAt - head.size());
  EXPECT_EQ(shipper_->BytesDropped({{"other", 1}, 0}), 0u);
  EXPECT_EQ(shipper_->Gaps(ref_), 1u);
  EXPECT_EQ(shipper_->Gaps({{"other", 1}, 0}), 0u);

  // Another daemon, before and after more was written.
  Write(task::SegmentPath(log_, kTailAt), Lines(5, 900));
  LogShipper next(options_, RealFileSystem());
  next.Add(ref_, "uid", log_);
  next.SetEnded(ref_);
  EXPECT_TRUE(Drain(&next, &receiver));
  EXPECT_EQ(receiver.bytes, so_far + Lines(5, 900));
  // From scratch, to a coordinator that lost everything: the same bytes.
  Receiver fresh;
  LogShipper third(options_, RealFileSystem());
  third.Add(ref_, "uid", log_);
  third.SetEnded(ref_);
  EXPECT_TRUE(Drain(&third, &fresh));
  EXPECT_EQ(fresh.bytes, receiver.bytes);
}

TEST_F(LogShipperTest, ARankThatNeverWroteHasAnEndToo) {
  shipper_->Add(ref_, "uid", log_);
  shipper_->SetEnded(ref_);
  Receiver receiver;
  EXPECT_TRUE(Drain(shipper_.get(), &receiver));
  EXPECT_TRUE(receiver.end);
}

TEST_F(LogShipperTest, ALoudLogDoesNotStarveAQuietOne) {
  Write(log_, Lines(100'000));
  const RankRef quiet{{"job", 2}, 5};
  Write(dir_ + "/quiet", Lines(1));
  shipper_->Add(ref_, "uid", log_);
  shipper_->Add(quiet, "uid", dir_ + "/quiet");
  Receiver loud;
  bool seen = false;
  for (int i = 0; i < 3 && !seen; ++i) {
    for (const LogPiece& piece : shipper_->Take(now_)) {
      seen = seen || piece.rank == quiet.rank;
      if (piece.rank == ref_.rank) shipper_->OnAck(loud.Take(piece), now_);
    }
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace lockstep::worker::agent
