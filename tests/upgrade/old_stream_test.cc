// What an older worker daemon said to its coordinator, said again to this one.
#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <sstream>

#include "absl/strings/escaping.h"
#include "tests/service/fixture.h"
#include "tests/upgrade/testdata.h"

namespace lockstep::server {
namespace {

using testing::SizeIs;

// Of the recorded stream.
struct Line {
  bool up = false;
  v1::WorkerMessage said;
  v1::CoordinatorMessage heard;
};

class OldStreamTest : public ServiceTest,
                      public testing::WithParamInterface<std::string> {};
LOCKSTEP_FOR_OLD_COMMITS(OldStreamTest, "stream.txt");

std::vector<Line> Recorded(const std::string& commit) {
  const char* const source = getenv("LOCKSTEP_SOURCE");
  const auto text = RealFileSystem()->Read(
      JoinPath(source == nullptr ? "" : source,
               "tests/upgrade/testdata/" + commit + "/stream.txt"));
  EXPECT_TRUE(text.ok()) << text.status();
  std::istringstream in(text.value_or(""));
  std::vector<Line> lines;
  for (std::string mark, base64; in >> mark >> base64;) {
    std::string bytes;
    EXPECT_TRUE(absl::Base64Unescape(base64, &bytes));
    Line& line = lines.emplace_back();
    line.up = mark == ">";
    EXPECT_TRUE(line.up ? line.said.ParseFromString(bytes)
                        : line.heard.ParseFromString(bytes));
  }
  return lines;
}

// The next message for which `condition` holds, in whatever order they come.
class Answers {
 public:
  explicit Answers(DaemonStream* stream) : stream_(stream) {}
  bool Await(const std::function<bool(const v1::CoordinatorMessage&)>& is) {
    for (auto it = early_.begin(); it != early_.end(); ++it) {
      if (!is(*it)) continue;
      early_.erase(it);
      return true;
    }
    while (auto message = stream_->Read()) {
      if (is(*message)) return true;
      early_.push_back(*std::move(message));
    }
    return false;
  }

 private:
  DaemonStream* const stream_;
  std::deque<v1::CoordinatorMessage> early_;
};

// The job's uid is this coordinator's; all else is as the old daemon sent it.
TEST_P(OldStreamTest, AJobRunsOnTheOldDaemonAndEnds) {
  const std::vector<Line> lines = Recorded(GetParam());
  ASSERT_FALSE(lines.empty());
  ASSERT_TRUE(lines.front().up && lines.front().said.has_register_());
  EXPECT_EQ(lines.front().said.register_().protocol(), 0);
  DaemonStream daemon(Worker("node-a"));
  Answers answers(&daemon);
  std::string uid;
  std::vector<v1::Goal> goals;
  for (Line line : lines) {
    if (line.up) {
      if (line.said.has_gang_status()) {
        line.said.mutable_gang_status()->set_job_uid(uid);
      }
      if (line.said.has_log_chunk()) {
        line.said.mutable_log_chunk()->set_job_uid(uid);
      }
      ASSERT_TRUE(daemon.Write(line.said)) << daemon.Finish();
      continue;
    }
    const v1::CoordinatorMessage& then = line.heard;
    // What to fetch ahead is each coordinator's own choice.
    if (then.has_prefetch()) continue;
    if (then.has_assignment() && uid.empty()) {
      MustSubmit("recorded");
      uid = Get("recorded")->uid();
    }
    if (then.has_assignment()) goals.push_back(then.assignment().goal());
    ASSERT_TRUE(answers.Await([&](const v1::CoordinatorMessage& now) {
      if (now.message_case() != then.message_case()) return false;
      if (then.has_assignment()) {
        return now.assignment().goal() == then.assignment().goal();
      }
      return !then.has_log_ack() ||
             now.log_ack().offset() == then.log_ack().offset();
    })) << then.DebugString()
        << daemon.Finish();
  }
  EXPECT_THAT(goals, testing::IsSupersetOf(
                         {v1::GOAL_PREPARE, v1::GOAL_LAUNCH, v1::GOAL_FORGET}));
  const auto job = Get("recorded");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job->attempts_size(), 1);
  ASSERT_THAT(job->tasks(), SizeIs(1));
  EXPECT_EQ(job->tasks(0).node(), "node-a");
  const auto log =
      RealFileSystem()->Read(JoinPath(dir_, "logs/" + uid + "/g1-r0.log"));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_THAT(*log, testing::HasSubstr(" stdout F hello\n"));
}

}  // namespace
}  // namespace lockstep::server
