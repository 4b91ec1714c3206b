// Text as people see it: tables, numbers, describe, summary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/describe.h"
#include "client/cli/describe_tasks.h"
#include "client/cli/job_view.h"
#include "client/cli/log_text.h"
#include "client/cli/output.h"
#include "client/cli/parse.h"
#include "client/cli/summary.h"
#include "client/cli/text.h"
#include "common/model/reduction_plan.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kFormatStart = 1'767'225'600;  // 2026-01-01 00:00:00 UTC

void AddSeconds(const char* name, double seconds, v1::Job* job) {
  v1::PhaseDuration* const phase = job->add_phases();
  phase->set_phase(name);
  phase->mutable_duration()->set_seconds(static_cast<int64_t>(seconds));
  phase->mutable_duration()->set_nanos(
      static_cast<int32_t>((seconds - static_cast<int64_t>(seconds)) * 1e9));
}

void FillRank(int number, v1::RankStatus* rank) {
  rank->set_rank(number);
  rank->set_state(v1::RANK_STATE_EXITED);
  rank->mutable_exit()->set_code(0);
  v1::RankProgress* const progress = rank->mutable_progress();
  progress->set_committed_step(1000);
  progress->set_total_steps(1000);
  progress->set_samples(64000);
  progress->set_loss(0.25);
  progress->mutable_phases()->set_compute(60);
  progress->mutable_phases()->set_allreduce(20);
  progress->mutable_phases()->set_straggler_wait(10);
  progress->mutable_phases()->set_input(5);
  progress->mutable_phases()->set_optimizer(3);
  progress->mutable_phases()->set_checkpoint(1);
  progress->mutable_phases()->set_other(1);
  (*progress->mutable_values())["accuracy"] = 0.8912;
  (*progress->mutable_values())["global_batch"] = 128;
  rank->mutable_usage()->set_seconds(100);
  rank->mutable_usage()->set_cpu_seconds(95);
  rank->mutable_usage()->set_memory_peak_bytes((300 + number) << 20);
}

v1::Job TrainedJob() {
  v1::Job job;
  job.set_name("fashion");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_generation(1);
  job.set_attempt(1);
  job.set_owner("user/ann");
  job.set_committed_step(1000);
  job.mutable_create_time()->set_seconds(kFormatStart);
  job.mutable_start_time()->set_seconds(kFormatStart + 2);
  job.mutable_end_time()->set_seconds(kFormatStart + 105);
  job.mutable_state_time()->set_seconds(kFormatStart + 105);
  job.mutable_cause()->set_reason(v1::REASON_COMPLETED);
  job.mutable_cause()->set_message("all ranks ended with code 0");
  v1::JobSpec* const spec = job.mutable_spec();
  spec->set_kind(v1::JOB_KIND_NATIVE);
  spec->add_argv("lockstep-train");
  AddSeconds("queued", 0.1, &job);
  AddSeconds("running", 103, &job);
  const v1::TaskType types[] = {v1::TASK_TYPE_CHIEF, v1::TASK_TYPE_WORKER};
  for (int i = 0; i < 2; ++i) {
    v1::RoleSpec* const role = spec->add_roles();
    role->set_type(types[i]);
    role->set_count(1);
    role->mutable_resources()->set_cpus(1);
    v1::TaskStatus* const task = job.add_tasks();
    task->set_type(types[i]);
    task->set_index(0);
    task->set_node(i == 0 ? "worker-0" : "worker-1");
    FillRank(i, task->add_ranks());
  }
  (*job.mutable_artifacts())["model"] = "/out/model.safetensors";
  job.mutable_last_checkpoint()->set_step(1000);
  job.mutable_last_checkpoint()->set_path("/out/checkpoints/1000");
  job.mutable_last_checkpoint()->set_bytes(3 << 20);
  job.mutable_bill()->set_core_seconds(206);
  job.mutable_bill()->set_cost(0.0123);
  job.mutable_bill()->set_currency("USD");
  return job;
}

TEST(TextTest, Numbers) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(-1234567), "-1,234,567");
  EXPECT_EQ(Number(0.891234), "0.8912");
  EXPECT_EQ(Number(12345.6), "12,346");
  EXPECT_EQ(Number(64), "64");
}

TEST(TextTest, AgeTakesTheUnitThatSaysEnough) {
  EXPECT_EQ(Age(std::chrono::seconds(-5)), "0s");
  EXPECT_EQ(Age(std::chrono::seconds(119)), "119s");
  EXPECT_EQ(Age(std::chrono::minutes(5)), "5m");
  EXPECT_EQ(Age(std::chrono::hours(3)), "3h");
  EXPECT_EQ(Age(std::chrono::hours(72)), "3d");
}

TEST(TextTest, TableIsAsWideAsItMustBe) {
  EXPECT_EQ(RenderTable({"NAME", "STATE"},
                        {{"a", "\x1b[32mREADY\x1b[0m"}, {"longer", ""}}),
            "NAME    STATE\n"
            "a       \x1b[32mREADY\x1b[0m\n"
            "longer\n");
  EXPECT_EQ(VisibleWidth("\x1b[1mä\x1b[0m"), 1u);
}

TEST(TextTest, ControlCharactersOfOthersAreShownNotObeyed) {
  EXPECT_EQ(Printable("a\x1b[2Jb\nc"), "a\\x1b[2Jb c");
  EXPECT_EQ(Printable("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(Printable("if (\u202e admin) \u2066"),
            "if (\\u202e admin) \\u2066");
  EXPECT_EQ(Printable("\u009b2J\u00e9\u20ac\U0001f600"),
            "\\u009b2J\u00e9\u20ac\U0001f600");
  EXPECT_EQ(Printable("\xc2\xff\xe2\x80"), "\xc2\xff\xe2\x80")
      << "what is no UTF-8 is left";
}

TEST(TextTest, ColorIsAskedForInOneOrder) {
  CliEnvironment env;
  EXPECT_TRUE(WantsColor("auto", env, true));
  EXPECT_FALSE(WantsColor("auto", env, false));
  EXPECT_TRUE(WantsColor("always", env, false));
  env.variables["TERM"] = "dumb";
  EXPECT_FALSE(WantsColor("auto", env, true));
  env.variables["CLICOLOR_FORCE"] = "1";
  EXPECT_TRUE(WantsColor("auto", env, false));
  env.variables["NO_COLOR"] = "1";
  EXPECT_FALSE(WantsColor("auto", env, true));
  EXPECT_TRUE(WantsColor("always", env, false));
}

TEST(TextTest, UnknownEnumValuesAreShownAsNumbers) {
  EXPECT_EQ(Text(static_cast<v1::JobState>(77)), "77");
  EXPECT_EQ(Text(v1::REASON_NO_CAPACITY), "NO_CAPACITY");
  EXPECT_EQ(Text(v1::TASK_TYPE_PS), "ps");
}

TEST(ParseTest, Bytes) {
  EXPECT_EQ(*ParseBytes("1000"), 1000);
  EXPECT_EQ(*ParseBytes("512MiB"), 512ll << 20);
  EXPECT_EQ(*ParseBytes("2G"), 2ll << 30);
  EXPECT_EQ(*ParseBytes("1.5 GiB"), 3ll << 29);
  EXPECT_EQ(*ParseBytes("4kB"), 4096);
  for (const char* bad : {"", "x", "-1", "2X", "1GiBs", "99999999T", "nan"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

TEST(ParseTest, Durations) {
  EXPECT_EQ(*ParseDuration("90"), std::chrono::seconds(90));
  EXPECT_EQ(*ParseDuration("1h30m"), std::chrono::minutes(90));
  EXPECT_EQ(*ParseDuration("500ms"), std::chrono::milliseconds(500));
  EXPECT_EQ(*ParseDuration("2d"), std::chrono::hours(48));
  for (const char* bad : {"", "h", "1x", "1h30", "-5s", "1e9d"}) {
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  }
}

TEST(ParseTest, Ranks) {
  EXPECT_THAT(*ParseRanks("5,0-2,1"), ElementsAre(0, 1, 2, 5));
  for (const char* bad : {"", "a", "3-1", "1,", "-1", "0-999999999", "1--2"}) {
    EXPECT_FALSE(ParseRanks(bad).ok()) << bad;
  }
}

TEST(ParseTest, Since) {
  const WallTime now = FromUnixNanos(kFormatStart * 1'000'000'000);
  EXPECT_EQ(*ParseSince("10m", now), now - std::chrono::minutes(10));
  EXPECT_EQ(*ParseSince("2026-01-01T00:00:00Z", WallTime()), now);
  EXPECT_FALSE(ParseSince("yesterday", now).ok());
}

TEST(OutputTest, JsonIsTheProtobufMappingAndYamlSaysTheSame) {
  v1::Job job;
  job.set_name("no");
  job.set_uid("123");
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_exit_code(3);
  (*job.mutable_artifacts())["model"] = "/out: x";
  EXPECT_THAT(ToJson(job), HasSubstr("\"exitCode\": 3"));
  EXPECT_THAT(ToJson(job), HasSubstr("\"restarts\": 0"));
  const std::string yaml = ToYaml(job);
  EXPECT_THAT(yaml, HasSubstr("name: 'no'\n"));
  EXPECT_THAT(yaml, HasSubstr("uid: '123'\n"));
  EXPECT_THAT(yaml, HasSubstr("state: JOB_STATE_FAILED\n"));
  EXPECT_EQ(JsonToYaml("{\"a\": \"1\\n'\", \"b\": \"1'\"}"),
            "a: \"1\\n'\"\nb: '1'''\n");
  EXPECT_THAT(yaml, HasSubstr("exitCode: 3\n"));
  EXPECT_THAT(yaml, HasSubstr("model: \"/out: x\"\n"));
}

TEST(JobViewTest, SharesAddUpToAHundredPercent) {
  v1::PhaseSeconds p;
  p.set_compute(1);
  p.set_input(1);
  p.set_other(1);
  int sum = 0;
  for (const auto& [name, share] : PhaseShares(p)) sum += share;
  EXPECT_EQ(sum, 1000);
  EXPECT_TRUE(PhaseShares(v1::PhaseSeconds()).empty());
}

TEST(JobViewTest, FirstFailureIsTheEarliestThatIsNoVictim) {
  v1::Job job = TrainedJob();
  v1::ExitStatus* const victim =
      job.mutable_tasks(0)->mutable_ranks(0)->mutable_exit();
  victim->set_signal(15);
  victim->set_victim(true);
  victim->mutable_end_time()->set_seconds(1);
  EXPECT_FALSE(FirstFailure(job).has_value());
  v1::ExitStatus* const culprit =
      job.mutable_tasks(1)->mutable_ranks(0)->mutable_exit();
  culprit->set_signal(9);
  culprit->mutable_end_time()->set_seconds(2);
  ASSERT_TRUE(FirstFailure(job).has_value());
  EXPECT_EQ(FirstFailure(job)->rank->rank(), 1);
  EXPECT_EQ(DescribeExit(*culprit), "signal 9 (Killed)");
}

TEST(JobViewTest, EndedAttemptIsCountedOnce) {
  v1::Job job = TrainedJob();
  v1::Attempt* const attempt = job.add_attempts();
  attempt->set_ordinal(1);
  attempt->set_generation(1);
  *attempt->mutable_tasks() = job.tasks();
  EXPECT_EQ(AllRanks(job).size(), 2u);
  EXPECT_EQ(Sum(job).samples, 128000);
}

TEST(JobViewTest, ExitCodes) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ExitCodeOf(job), 0);
  job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ExitCodeOf(job), 1);
  job.set_state(v1::JOB_STATE_FAILED);
  EXPECT_EQ(ExitCodeOf(job), 1);
  job.set_exit_code(137);
  EXPECT_EQ(ExitCodeOf(job), 137);
}

TEST(SummaryTest, StepsAreThoseOfTheRankThatIsAhead) {
  v1::Job job = TrainedJob();
  job.set_committed_step(370);
  EXPECT_THAT(TrainingText(job), StartsWith("1,000 steps"));
  job.mutable_tasks(0)->mutable_ranks(0)->mutable_progress()->Clear();
  EXPECT_THAT(TrainingText(job), StartsWith("1,000 steps"));
}

TEST(SummaryTest, Succeeded) {
  EXPECT_EQ(FormatSummary(TrainedJob(), Style{}),
            "fashion SUCCEEDED after 1 m 45 s\n"
            "  phases      queued 100 ms, running 1 m 43 s\n"
            "  result      accuracy 0.8912, loss 0.25\n"
            "  training    1,000 steps, global batch 128, 2 replicas, 128,000 "
            "samples\n"
            "  model       /out/model.safetensors\n"
            "  checkpoint  /out/checkpoints/1000 (step 1,000, 3 MiB)\n"
            "  used        CPU 0.95 cores per rank (190 core-seconds), memory "
            "peak 301 MiB (rank 1), no GPU\n"
            "  step time   100 ms: compute 60.0 %, all-reduce 20.0 %, "
            "straggler wait 10.0 %, input 5.0 %, optimizer 3.0 %, checkpoint "
            "1.0 %, other 1.0 %\n"
            "  bill        206 core-seconds, 0.0 GPU-seconds: 0.012300 USD\n");
}

TEST(SummaryTest, OfAJobThatNeverRanSaysOnlyWhatIsKnown) {
  v1::Job job;
  job.set_name("a");
  job.set_state(v1::JOB_STATE_CANCELLED);
  job.mutable_cause()->set_message("cancelled by user/ann");
  AddSeconds("queued", 3, &job);
  EXPECT_EQ(FormatSummary(job, Style{}),
            "a CANCELLED: cancelled by user/ann\n"
            "  phases      queued 3.0 s\n");
}

TEST(SummaryTest, FailureNamesTheRankAndItsLastLines) {
  v1::Job job = TrainedJob();
  job.clear_cause();
  job.set_state(v1::JOB_STATE_FAILED);
  v1::ExitStatus* const exit =
      job.mutable_tasks(1)->mutable_ranks(0)->mutable_exit();
  exit->set_code(3);
  exit->set_message("no such data set");
  v1::LogLine line;
  line.set_text("cannot open /data\x1b[0m");
  EXPECT_EQ(FormatFailure(job, {line}, Style{}),
            "first cause: rank 1 (worker 0 on worker-1): exit code 3: no such "
            "data set\n"
            "last lines of rank 1:\n"
            "  cannot open /data\\x1b[0m\n");
}

// What the coordinator found is told, not what the exit alone says.
TEST(SummaryTest, FailureSaysTheJobsCauseWithItsHint) {
  v1::Job job = TrainedJob();
  job.set_state(v1::JOB_STATE_FAILED);
  v1::ExitStatus* const exit =
      job.mutable_tasks(1)->mutable_ranks(0)->mutable_exit();
  exit->set_code(1);
  exit->set_message("RuntimeError: No CUDA GPUs are available");
  job.mutable_cause()->set_reason(v1::REASON_REPEATED_FAILURE);
  const std::string cause =
      "failed twice in the same way without progress, so it is not retried: "
      "rank 1 (worker 0 on worker-1): exit code 1: RuntimeError: No "
      "CUDA "
      "GPUs are available (train.py:3); the job requests no GPU: give --gpus N";
  job.mutable_cause()->set_message(cause);
  EXPECT_EQ(FormatFailure(job, {}, Style{}), "first cause: " + cause + "\n");
}

TEST(SummaryTest, FailureNamesTheRankThatLeftEarly) {
  v1::Job job = TrainedJob();
  job.set_state(v1::JOB_STATE_FAILED);
  v1::ExitStatus* const exit =
      job.mutable_tasks(0)->mutable_ranks(0)->mutable_exit();
  exit->set_code(1);
  exit->set_message("RuntimeError: Connection closed by peer");
  job.mutable_cause()->set_reason(v1::REASON_RANK_LEFT_EARLY);
  job.mutable_cause()->set_message(
      "rank 1 (worker 0 on worker-1) exited with 0 while others still needed "
      "it; rank 0 (chief 0 on worker-0): exit code 1: RuntimeError: Connection "
      "closed by peer");
  EXPECT_THAT(FormatFailure(job, {}, Style{}),
              StartsWith("first cause: rank 1 (worker 0 on worker-1) exited "
                         "with 0 while others still needed it; "));
  // Sentences are hidden from those who may not read them.
  job.mutable_cause()->clear_message();
  EXPECT_EQ(FormatFailure(job, {}, Style{}), "first cause: RANK_LEFT_EARLY\n");
}

TEST(SummaryTest, FailureOfNoRankSaysItsReason) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_cause()->set_reason(v1::REASON_OUTPUT_NOT_SHARED);
  job.mutable_cause()->set_message("/out is not shared");
  EXPECT_EQ(FormatFailure(job, {}, Style{}),
            "first cause: /out is not shared (OUTPUT_NOT_SHARED)\n");
}

TEST(DescribeTest, AnswersInTheOrderOneAsks) {
  v1::Job job = TrainedJob();
  v1::Event* const event = job.add_events();
  event->mutable_time()->set_seconds(kFormatStart + 2);
  event->set_generation(1);
  event->set_reason(v1::REASON_RUNNING);
  event->set_message("2 ranks formed");
  const WallTime now = FromUnixNanos((kFormatStart + 200) * 1'000'000'000);
  const std::string text = FormatJob(job, now, Style{});
  size_t last = 0;
  for (const char* part :
       {"state        SUCCEEDED", "why          COMPLETED: all ranks ended",
        "since        2026-01-01 00:01:45 UTC (95s ago)", "Where\n",
        "  0     chief 0   worker-0  exit code 0", "How fast\n",
        "What it uses\n", "network not counted", "What it costs\n",
        "CORE-H HELD", "GPU-H HELD", "What happened\n",
        "2026-01-01 00:00:02 UTC  1           RUNNING  2 ranks formed"}) {
    const size_t at = text.find(part, last);
    ASSERT_NE(at, std::string::npos) << part << " after " << last << "\n"
                                     << text;
    last = at;
  }
  job.set_state(v1::JOB_STATE_PLACING);
  EXPECT_EQ(FormatJob(job, now, Style{}).find("Where\n"), std::string::npos)
      << "it is nowhere now";
}

TEST(DescribeTest, AFaultyGpuThatTheJobUsesIsRed) {
  v1::Job job = TrainedJob();
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_tasks(0)->add_gpus(0);
  job.mutable_tasks(1)->add_gpus(1);
  job.mutable_tasks(1)->add_gpus(2);
  v1::Node node;
  node.set_name("worker-1");
  for (const int index : {0, 1, 3}) node.add_gpus()->set_index(index);
  node.mutable_gpus(0)->set_fault("it is another job's");
  node.mutable_gpus(1)->set_fault("Xid 79 at 12:00");
  node.add_missing_gpus()->set_index(2);
  const auto bad = BadGpusOf(job, {node});
  EXPECT_THAT(bad, ElementsAre("worker 0 uses GPU 1 of node worker-1: Xid 79 "
                               "at 12:00",
                               "worker 0 uses GPU 2 of node worker-1: the node "
                               "no longer offers it"));
  const WallTime now = FromUnixNanos((kFormatStart + 200) * 1'000'000'000);
  const Style colored{true};
  const std::string text = FormatJob(job, now, colored, bad);
  EXPECT_THAT(text, testing::ContainsRegex("state  [^\n]*\nbad gpu "));
  for (const std::string& line : bad) {
    EXPECT_THAT(text, HasSubstr(colored.Red(line)));
  }
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(BadGpusOf(job, {node}), testing::IsEmpty());
}

TEST(DescribeTest, NamesTheRankThatTheOthersWaitFor) {
  v1::Job job = TrainedJob();
  job.set_state(v1::JOB_STATE_RUNNING);
  const auto wait = [&](int task, double seconds) {
    v1::PhaseSeconds* const p = job.mutable_tasks(task)
                                    ->mutable_ranks(0)
                                    ->mutable_progress()
                                    ->mutable_phases();
    p->Clear();
    p->set_straggler_wait(seconds);
    p->set_compute(100 - seconds);
  };
  wait(0, 30);
  wait(1, 1);
  EXPECT_EQ(StragglerText(job),
            "the others wait for rank 1 (worker 0 on worker-1): 30 % of their "
            "time");
  wait(1, 25);
  EXPECT_THAT(StragglerText(job), HasSubstr("wait for each other 28 %"));
  wait(0, 0.5);
  wait(1, 0);
  EXPECT_EQ(StragglerText(job), "");
  // What the chief heard of the last steps is newer, and has a price.
  v1::Straggler* const chiefs = job.mutable_tasks(0)
                                    ->mutable_ranks(0)
                                    ->mutable_progress()
                                    ->mutable_straggler();
  chiefs->set_rank(1);
  chiefs->set_steps(100);
  chiefs->set_late_steps(97);
  chiefs->set_cost(0.1234);
  EXPECT_EQ(StragglerText(job),
            "rank 1 (worker 0 on worker-1) came last to 97 of the last 100 "
            "steps and costs 12.3 % of their time");
  chiefs->set_cost(0.001);
  EXPECT_EQ(StragglerText(job), "");
  job.mutable_tasks()->RemoveLast();
  wait(0, 30);
  EXPECT_EQ(StragglerText(job), "");
}

TEST(DescribeTest, SaysHowOldTheCheckpointIs) {
  v1::Job job = TrainedJob();
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_last_checkpoint()->mutable_time()->set_seconds(kFormatStart + 60);
  job.mutable_progress()->mutable_chief()->set_committed_step(1500);
  const WallTime now = FromUnixNanos((kFormatStart + 100) * 1'000'000'000);
  EXPECT_THAT(FormatJob(job, now, Style{}),
              HasSubstr("checkpoint   step 1,000, 40s ago, 3 MiB, in "
                        "/out/checkpoints/1000; a failure now would repeat 500 "
                        "steps"));
}

TEST(DescribeTest, SaysByWhichPlanItReduces) {
  ReductionPlan plan;
  plan.ranks = 4;
  plan.hosts = 2;
  plan.communicator =
      "hierarchical ranks=4 hosts=2x2 between tcp ranks=2 doubling=65536 "
      "halving=65536 chunk=65408 ahead=2 mesh=16 streams=1";
  plan.bucket_bytes = 2 << 20;
  plan.first_bucket_bytes = 1 << 20;
  plan.last_bucket_bytes = 256 << 10;
  plan.parameters = 14;
  plan.layout = "0123456789abcdef";
  v1::Job job = TrainedJob();
  const WallTime now = FromUnixNanos((kFormatStart + 200) * 1'000'000'000);
  const auto row = [&](const char* pinned) {
    return fmt::format("\n  reduces      by plan {}{}: buckets of 2 MiB, {}\n",
                       HashOf(plan), pinned, plan.communicator);
  };
  EXPECT_THAT(FormatJob(job, now, Style{}), Not(HasSubstr("reduces ")));
  job.set_reduction_plan(*Format(plan));
  EXPECT_THAT(FormatJob(job, now, Style{}), HasSubstr(row("")));
  // Before the ranks have told theirs.
  job.mutable_spec()->set_reduction_plan(job.reduction_plan());
  job.clear_reduction_plan();
  EXPECT_THAT(FormatJob(job, now, Style{}), HasSubstr(row(" (pinned)")));
  plan.communicator.clear();
  job.set_reduction_plan(*Format(plan));
  EXPECT_THAT(FormatJob(job, now, Style{}),
              HasSubstr(fmt::format("by plan {} (pinned): buckets of 2 MiB\n",
                                    HashOf(plan))));
}

TEST(DescribeTest, ANodeThatCoolsDownOrIsApart) {
  v1::Node node;
  node.set_name("a");
  const WallTime now = FromUnixNanos(kFormatStart * 1'000'000'000);
  const std::string well = FormatNode(node, now, Style{});
  EXPECT_EQ(well.find("cools down"), std::string::npos);
  EXPECT_EQ(well.find("apart from"), std::string::npos);
  node.mutable_cool_down_end()->set_seconds(kFormatStart + 90);
  node.add_apart_from("b");
  node.add_apart_from("c");
  const std::string text = FormatNode(node, now, Style{});
  EXPECT_THAT(text,
              testing::ContainsRegex("cools down +until [^\n]*for another"));
  EXPECT_THAT(text, testing::ContainsRegex("apart from +b, c\n"));
}

TEST(DescribeTest, NodeWithDrainGpusAndEvents) {
  v1::Node node;
  node.set_name("host-a");
  node.set_state(v1::NODE_STATE_DRAINING);
  node.set_pool("t4");
  node.mutable_state_time()->set_seconds(kFormatStart);
  node.mutable_drain()->set_requester("user/ann");
  node.mutable_drain()->set_reason("new disk");
  node.mutable_drain()->mutable_time()->set_seconds(kFormatStart);
  node.mutable_drain()->mutable_deadline()->set_seconds(kFormatStart + 90);
  v1::Gpu* const gpu = node.add_gpus();
  gpu->set_index(1);
  gpu->set_model("Tesla T4");
  gpu->set_memory_bytes(16ll << 30);
  v1::GpuUsage* const usage = node.add_gpu_usage();
  usage->set_index(1);
  usage->set_utilization(0.5);
  usage->set_memory_access(0.25);
  usage->set_power_watts(70);
  usage->set_sm_activity(0.61);
  usage->set_tensor_activity(0.42);
  v1::Event* const event = node.add_events();
  event->mutable_time()->set_seconds(kFormatStart);
  event->set_reason(v1::REASON_NODE_DRAIN);
  event->set_message("drained by user/ann");
  const WallTime now = FromUnixNanos((kFormatStart + 30) * 1'000'000'000);
  const std::string text = FormatNode(node, now, Style{});
  EXPECT_THAT(text, HasSubstr("drain        by user/ann, 30s ago: new disk; "
                              "what still runs is killed in 60s\n"));
  EXPECT_THAT(text, HasSubstr("pool         t4"));
  EXPECT_THAT(text, testing::ContainsRegex("1 +Tesla T4 +ok +50 % +61 % +42 % "
                                           "+25 % +16 GiB +70 W"));
  EXPECT_THAT(text, HasSubstr("NODE_DRAIN  drained by user/ann"));
  node.mutable_drain()->clear_deadline();
  EXPECT_THAT(FormatNode(node, now, Style{}),
              HasSubstr("its jobs run to their end"));
  gpu->set_fault("Xid 79 at 12:00");
  // A GPU that answers, and has no counters for it.
  node.mutable_gpu_usage(0)->clear_sm_activity();
  node.mutable_gpu_usage(0)->clear_tensor_activity();
  EXPECT_THAT(FormatNode(node, now, Style{}),
              HasSubstr("  1    Tesla T4  Xid 79 at 12:00  50 %  unsupported  "
                        "unsupported  25 %"));
  const Style colored{true};
  EXPECT_THAT(FormatNode(node, now, colored),
              HasSubstr(colored.Red("Xid 79 at 12:00")));
  EXPECT_THAT(RenderTable(NodesTable({node}, false, now, colored)),
              HasSubstr(colored.Red(", 1 bad")));
  // The list says it, too, and else why the node is drained.
  gpu->set_fault("reclaim: process 4711 still uses it");
  gpu->set_state(v1::GPU_STATE_RECLAIM);
  v1::HeldProcess* held = gpu->mutable_reclaim()->add_processes();
  held->set_pid(4711);
  held->set_user("ann");
  held->set_command("python");
  held->set_state("D");
  held->set_wait_channel("nv_wait");
  held->set_job("resnet");
  held->set_gpu_memory_bytes(int64_t{5} << 30);
  *node.add_stuck_processes() = *held;
  node.add_stuck_processes()->set_pid(4712);
  const std::string reclaimed = FormatNode(node, now, Style{});
  EXPECT_THAT(reclaimed, HasSubstr("1 in reclaim"));
  EXPECT_THAT(reclaimed, Not(HasSubstr("1 bad")));
  EXPECT_THAT(reclaimed,
              testing::ContainsRegex("4711 +[0-9]+ +ann +python +D +nv_wait "
                                     "+resnet +5 GiB"));
  EXPECT_THAT(reclaimed, testing::ContainsRegex("4712 +- +- +- "));
  gpu->set_state(v1::GPU_STATE_CHECKING);
  EXPECT_THAT(FormatNode(node, now, Style{}), HasSubstr("1 in check"));
  v1::GpuCheck* check = node.add_gpu_checks();
  check->set_index(1);
  check->mutable_took()->set_seconds(21);
  v1::GpuCheckPart* part = check->add_parts();
  part->set_name("memory");
  part->set_value(1875.3);
  part->set_unit("GB/s");
  EXPECT_THAT(
      FormatNode(node, now, Style{}),
      testing::ContainsRegex("1 +[^ ]+ +21 s +passed +memory 1875 GB/s"));
  check->set_failure("memory: 3 words are wrong");
  EXPECT_THAT(FormatNode(node, now, Style{}),
              HasSubstr("memory: 3 words are wrong"));
  node.clear_gpu_checks();
  gpu->clear_state();
  gpu->clear_reclaim();
  node.clear_stuck_processes();
  gpu->clear_fault();
  EXPECT_THAT(RenderTable(NodesTable({node}, false, now, Style{})),
              HasSubstr("new disk"));
}

TEST(DescribeTest, WhereTheCurrentAttemptBegan) {
  v1::Job job;
  job.set_name("next");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_generation(2);
  job.set_attempt(2);
  const WallTime now = FromUnixNanos((kFormatStart + 200) * 1'000'000'000);
  EXPECT_THAT(FormatJob(job, now, Style{}), Not(HasSubstr("1,500")));
  job.set_resumed_step(1500);
  EXPECT_THAT(FormatJob(job, now, Style{}),
              HasSubstr("1,500      continues: RUNNING"));
}

TEST(DescribeTest, JobsTable) {
  v1::Job waiting;
  waiting.set_name("next");
  waiting.set_state(v1::JOB_STATE_QUEUED);
  waiting.mutable_create_time()->set_seconds(kFormatStart + 140);
  waiting.mutable_cause()->set_message("fashion holds the GPUs");
  waiting.mutable_spec()->add_roles()->set_count(4);
  const WallTime now = FromUnixNanos((kFormatStart + 200) * 1'000'000'000);
  EXPECT_EQ(
      RenderTable(JobsTable({TrainedJob(), waiting}, false, now, Style{})),
      "NAME     STATE      TASKS  STEP   RAN   AGE  WHY\n"
      "fashion  SUCCEEDED  2      1,000  103s  3m\n"
      "next     QUEUED     4      -      -     60s  fashion holds "
      "the GPUs\n");
}

TEST(DescribeTest, Nodes) {
  v1::Node node;
  node.set_name("host-a");
  node.set_state(v1::NODE_STATE_READY);
  node.mutable_capacity()->set_cpus(4);
  node.mutable_capacity()->set_memory_bytes(8ll << 30);
  node.mutable_allocated()->set_cpus(1.5);
  node.add_jobs("fashion");
  node.mutable_last_heartbeat()->set_seconds(kFormatStart);
  const WallTime now = FromUnixNanos((kFormatStart + 1) * 1'000'000'000);
  EXPECT_EQ(RenderTable(NodesTable({node}, false, now, Style{})),
            "NAME    STATE  CPUS   MEMORY     GPUS  JOBS  HEARTBEAT  WHY\n"
            "host-a  READY  1.5/4  0 B/8 GiB  0/0   1     1s ago\n");
  const std::string text = FormatNode(node, now, Style{});
  EXPECT_THAT(text, HasSubstr("limits       not enforced"));
  EXPECT_THAT(text, HasSubstr("jobs         fashion"));
  EXPECT_THAT(text, HasSubstr("metrics      its daemon has no HTTP port"));
}

TEST(DescribeTest, NodeThatIsNotWhole) {
  v1::Node node;
  node.set_name("host-a");
  node.set_state(v1::NODE_STATE_READY);
  node.set_address("10.0.0.1");
  node.set_http_address("127.0.0.1:9464");
  node.set_limits_message("no cgroup of its own");
  node.mutable_certificate_end_time()->set_seconds(kFormatStart + 86400 * 3);
  node.add_gpus()->set_uuid("GPU-a");
  v1::Gpu* const missing = node.add_missing_gpus();
  missing->set_index(1);
  missing->set_uuid("GPU-b");
  const WallTime now = FromUnixNanos(kFormatStart * 1'000'000'000);
  const std::string text = FormatNode(node, now, Style{});
  EXPECT_THAT(text, HasSubstr("(no cgroup of its own)"));
  EXPECT_THAT(text,
              HasSubstr("metrics      127.0.0.1:9464 is a loopback address"));
  EXPECT_THAT(text, HasSubstr("(in 3d"));
  EXPECT_THAT(text, HasSubstr("GPUs that it no longer offers"));
  EXPECT_THAT(text, HasSubstr("GPU-b"));
  EXPECT_THAT(RenderTable(NodesTable({node}, false, now, Style{})),
              HasSubstr("1 of 2 GPUs is missing"));
  const Style colored{true};
  EXPECT_THAT(RenderTable(NodesTable({node}, false, now, colored)),
              HasSubstr(colored.Red(", 1 missing")));
  node.set_http_address("0.0.0.0:9464");
  EXPECT_EQ(FormatNode(node, now, Style{}).find("metrics "), std::string::npos);
}

TEST(LogTextTest, TextIsLeftAsItIs) {
  v1::LogLine line;
  line.mutable_time()->set_seconds(kFormatStart);
  line.set_rank(3);
  line.set_task_type(v1::TASK_TYPE_WORKER);
  line.set_task_index(2);
  line.set_text("a\x1b[1mb\xff");
  EXPECT_EQ(FormatLogLine(line, {}, Style{}), "a\x1b[1mb\xff\n");
  EXPECT_EQ(FormatLogLine(line, {true, true}, Style{}),
            "[3 worker 2] 2026-01-01T00:00:00.000Z a\x1b[1mb\xff\n");
}

}  // namespace
}  // namespace lockstep::cli
