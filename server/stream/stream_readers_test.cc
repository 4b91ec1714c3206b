#include "server/stream/stream_readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <memory>
#include <sstream>
#include <vector>

#include "server/stream/users_test_util.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

ReaderLimits Limits() {
  ReaderLimits limits;
  limits.caller_bytes = 100;
  limits.role_bytes = 150;
  limits.caller_share = 10;
  return limits;
}

class StreamReadersTest : public testing::Test {
 protected:
  std::unique_ptr<StreamReaders::Reader> Open(const pki::Identity& caller) {
    return std::make_unique<StreamReaders::Reader>(
        &readers_, caller,
        [this](const Status& status) { ends_.push_back(status); });
  }
  std::string Page() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, readers_.Collect());
    return out.str();
  }

  StreamReaders readers_{Limits()};
  std::vector<Status> ends_;
};

TEST_F(StreamReadersTest, OneWhoTakesNothingForSoLongIsEndedOnce) {
  const auto reader = Open(kAnn);
  const auto idle = Open(kAnn);
  const MonoTime now = MonotonicNow();
  EXPECT_EQ(readers_.EndStalled(now + 3600s), 0) << "nothing waits";
  reader->SetWaiting(true);
  EXPECT_EQ(readers_.EndStalled(now + 59s), 0);
  reader->SetWaiting(false);
  EXPECT_EQ(readers_.EndStalled(now + 3600s), 0);
  reader->SetWaiting(true);
  EXPECT_EQ(readers_.EndStalled(now + 3600s), 1);
  EXPECT_EQ(readers_.EndStalled(now + 3600s), 0);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(ends_[0]), HasSubstr("was idle for"));
  EXPECT_THAT(Page(),
              HasSubstr("lockstep_watch_ended_total{why=\"stalled\"} 1"));
}

TEST_F(StreamReadersTest, WhatOneCallerKeepsIsBoundedOverItsStreams) {
  const auto one = Open(kAnn);
  auto two = Open(kAnn);
  EXPECT_TRUE(one->Keep(60).ok());
  const Status refused = two->Keep(60);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "READERS_TOO_SLOW");
  EXPECT_TRUE(Open(kBob)->Keep(30).ok()) << "another's";
  two.reset();
  EXPECT_TRUE(one->Keep(100).ok());
  EXPECT_THAT(Page(),
              AllOf(HasSubstr("lockstep_watch_kept_bytes 100"),
                    HasSubstr("lockstep_watch_ended_total{why=\"memory\"} 1")));
  EXPECT_THAT(ends_, IsEmpty()) << "it was told at once";
}

TEST_F(StreamReadersTest, OfARoleAllTogetherAreBoundedAndEachHasAShare) {
  const auto ann = Open(kAnn);
  const auto bob = Open(kBob);
  EXPECT_TRUE(ann->Keep(100).ok());
  EXPECT_TRUE(bob->Keep(50).ok());
  const auto cid = Open(kCid);
  EXPECT_TRUE(cid->Keep(10).ok());
  EXPECT_FALSE(cid->Keep(11).ok());
  EXPECT_TRUE(cid->Keep(5).ok()) << "less is never refused";
  EXPECT_TRUE(Open(kRoot)->Keep(100).ok()) << "users keep no admin waiting";
}

}  // namespace
}  // namespace lockstep::server
