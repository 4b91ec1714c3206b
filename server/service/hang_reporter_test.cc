#include "server/service/hang_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace lockstep::server {
namespace {

using testing::HasSubstr;
using std::chrono_literals::operator""s;

class HangReporterTest : public testing::Test {
 protected:
  HangReporterTest()
      : reporter_(std::make_unique<HangReporter>(
            &desk_,
            [this](const FoundRanks& ranks, const HangVerdict& verdict) {
              std::lock_guard lock(mu_);
              recorded_.emplace_back(ranks.job, verdict.sentence);
              changed_.notify_all();
            })) {}

  static FoundRanks Stalled(const JobName& job) {
    FoundRanks found;
    found.job = job;
    found.job_uid = "uid-" + job;
    found.generation = 3;
    found.ranks["a"] = {0, 1};
    found.kept_for = Reason::kNoProgress;
    return found;
  }
  // What node a answers at once: rank 1 is stopped, and one rank too many.
  void Answer(const EvidenceQuery& query) {
    {
      std::lock_guard lock(mu_);
      queries_.push_back(query);
    }
    for (const int32_t rank : {0, 1, 7}) {
      EvidenceAnswer answer;
      answer.id = query.id;
      answer.evidence.emplace();
      answer.evidence->rank = rank;
      answer.evidence->node = "a";
      ProcessEvidence& process = answer.evidence->processes.emplace_back();
      process.pid = 100 + rank;
      process.state = rank == 0 ? "S" : "T";
      ThreadEvidence& thread = process.threads.emplace_back();
      thread.main = true;
      thread.state = process.state;
      answer.last = rank == 7;
      desk_.OnAnswer(connection_, std::move(answer));
    }
  }
  bool WaitForRecords(size_t count) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, 20s,
                             [&] { return recorded_.size() >= count; });
  }

  EvidenceDesk desk_;
  EvidenceDesk::Connection connection_ = 0;
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::pair<JobName, std::string>> recorded_;
  std::vector<EvidenceQuery> queries_;
  std::unique_ptr<HangReporter> reporter_;
};

TEST_F(HangReporterTest, TheVerdictOfWhatWasKeptIsRecorded) {
  std::thread node;
  connection_ = desk_.Connect("a", [&](const EvidenceQuery& query) {
    node = std::thread([this, query] { Answer(query); });
  });
  reporter_->OnCaptured(Stalled("j"));
  ASSERT_TRUE(WaitForRecords(1));
  node.join();
  EXPECT_EQ(recorded_[0].first, "j");
  EXPECT_THAT(recorded_[0].second, HasSubstr("rank 1 is stopped"));
  ASSERT_EQ(queries_.size(), 1u);
  EXPECT_EQ(queries_[0].kept_uid, "uid-j");
  EXPECT_EQ(queries_[0].generation, 3u);
}

TEST_F(HangReporterTest, ANodeThatIsAwayLeavesItUnknown) {
  reporter_->OnCaptured(Stalled("j"));
  reporter_->OnCaptured(Stalled("k"));
  ASSERT_TRUE(WaitForRecords(2));
  EXPECT_THAT(recorded_[0].second, HasSubstr("cannot be known"));
  EXPECT_EQ(recorded_[1].first, "k");
}

TEST_F(HangReporterTest, ItEndsWhileANodeIsAsked) {
  std::mutex asked_mu;
  std::condition_variable asked_changed;
  bool asked = false;
  connection_ = desk_.Connect("a", [&](const EvidenceQuery&) {
    std::lock_guard lock(asked_mu);
    asked = true;
    asked_changed.notify_all();
  });
  reporter_->OnCaptured(Stalled("j"));
  {
    std::unique_lock lock(asked_mu);
    ASSERT_TRUE(asked_changed.wait_for(lock, 20s, [&] { return asked; }));
  }
  const MonoTime before = MonotonicNow();
  reporter_.reset();
  EXPECT_LT(MonotonicNow() - before, 4s) << "the node has 7 s";
  EXPECT_TRUE(recorded_.empty());
}

}  // namespace
}  // namespace lockstep::server
