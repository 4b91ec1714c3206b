// Orders for programs that have joined: save, and stop.
#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class OrdersTest : public ClusterTest {
 protected:
  // One core on each; two run a job, and one is there to move to.
  OrdersTest() {
    options_.workers = 3;
    options_.cpus = 3;
  }

  v1::JobSpec Orders(const std::string& name) {
    v1::JobSpec spec = Program(name, 2,
                               {TestBinary("light_rank"), "--orders",
                                Path("saved"), "--until", Path("go")});
    spec.set_restart_budget(0);
    return spec;
  }
  void SubmitJoined(const std::string& name) {
    Submit(Orders(name));
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(HasLine(name, rank, "joined "));
    }
    WaitUntil(name, "steps of both ranks", [](const v1::Job& job) {
      const auto ranks = Ranks(job);
      return ranks.size() == 2 && ranks.at(0).progress().committed_step() > 5 &&
             ranks.at(1).progress().committed_step() > 5;
    });
  }
  // The same line of both ranks.
  std::string SameLine(const std::string& job, const std::string& start,
                       int attempt = 0) {
    EXPECT_TRUE(HasLine(job, 0, start));
    EXPECT_TRUE(HasLine(job, 1, start));
    const std::string line = Line(job, 0, start, attempt);
    EXPECT_EQ(line, Line(job, 1, start, attempt));
    return line;
  }
};

TEST_F(OrdersTest, BothRanksSaveAfterTheSameStep) {
  SubmitJoined("saves");
  const auto asked = client()->RequestCheckpoint("saves");
  ASSERT_TRUE(asked.ok()) << asked.status();
  const std::string due = SameLine("saves", "due ");
  const v1::Job job = WaitUntil("saves", "a checkpoint", [](const v1::Job& j) {
    return j.has_last_checkpoint();
  });
  EXPECT_EQ("due " + std::to_string(job.last_checkpoint().step()), due);
  // It is done: the next one is another.
  const CommandResult again =
      Lockstep({"jobs", "checkpoint", "saves", "--wait", "--timeout", "60s"});
  EXPECT_EQ(again.code, 0) << again.err;
  WriteFile(Path("go"), "");
  WaitEnd("saves", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(OrdersTest, AProgramThatHasNotJoinedIsToldHow) {
  Submit(Shell("plain", 1, "exec sleep 100"));
  WaitFor("plain", v1::JOB_STATE_RUNNING);
  const auto asked = client()->RequestCheckpoint("plain");
  EXPECT_EQ(asked.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(asked.status()), HasSubstr("lockstep.join()"));
}

TEST_F(OrdersTest, CancelSavesBefore) {
  SubmitJoined("ends");
  const CommandResult cancelled =
      Lockstep({"jobs", "cancel", "ends", "--save"});
  EXPECT_EQ(cancelled.code, 0) << cancelled.err;
  const v1::Job job = WaitEnd("ends", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(SameLine("ends", "due "),
            "due " + std::to_string(job.last_checkpoint().step()));
}

TEST_F(OrdersTest, ADrainedNodeIsLeftAfterTheSameStep) {
  SubmitJoined("moves");
  const std::string node = Get("moves").tasks(1).node();
  cli::DrainOptions options;
  options.reason = "new disk";
  options.grace = std::chrono::seconds(60);
  ASSERT_TRUE(client()->DrainNode(node, options).ok());
  const v1::Job job =
      WaitUntil("moves", "a second attempt", [](const v1::Job& j) {
        return j.generation() == 2 && j.state() == v1::JOB_STATE_RUNNING;
      });
  ASSERT_THAT(job.attempts(), SizeIs(1)) << "those that have ended";
  EXPECT_THAT(job.attempts(0).end_cause().message(),
              HasSubstr("saved and stopped after step"));
  const std::string stop = SameLine("moves", "stop ", 1);
  EXPECT_EQ(SameLine("moves", "due ", 1), "due " + stop.substr(5));
  for (const v1::TaskStatus& task : job.tasks()) EXPECT_NE(task.node(), node);
  WriteFile(Path("go"), "");
  WaitEnd("moves", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(SameLine("moves", "start ", 2), "start " + stop.substr(5));
}

}  // namespace
}  // namespace lockstep
