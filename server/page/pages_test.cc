// Pages about one job: its curves, logs and evidence, and their addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/core/testing.h"
#include "server/page/chart.h"
#include "server/page/compare_page.h"
#include "server/page/job_curves.h"
#include "server/page/logs_page.h"
#include "server/page/page_query.h"
#include "server/page/status_page.h"
#include "server/page/why_page.h"

namespace lockstep::server {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kPageMarkup[] = "<script>alert(1)</script>\"' onload='x' &amp;";
constexpr char kPageEscaped[] =
    "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;";
const WallTime kPlotStart =
    FromUnixNanos(int64_t{1'767'225'600} * 1'000'000'000);
const JobReader kPageOwner = {.name = "user/ann", .sees_all = false};

HistoryPlot Plot(int32_t ranks, const std::string& value = "accuracy") {
  PlotBuilder builder(kPlotStart, kPlotStart + seconds(10), 10);
  for (int i = 0; i < 10; ++i) {
    const auto bins = builder.BinsOf(kPlotStart + seconds(i), seconds(1));
    const auto x = static_cast<float>(i);
    if (i == 4) continue;
    builder.Add(bins, JobSeries::kLoss, 1 / (1 + x));
    builder.Add(bins, value, x);
    builder.Add(bins, JobSeries::kStepMedian, 0.5);
    builder.Add(bins, JobSeries::kStepP99, i == 7 ? 90.0F : 0.6F);
    builder.Add(bins, JobSeries::kCompute, 0.75);
    builder.Add(bins, JobSeries::kInput, 0.25);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      builder.Add(bins, rank, RankSeries::kCpu, rank == 2 ? 1.0F : 4.0F);
    }
    builder.Add(bins, JobSeries::kCpu, 4);
  }
  builder.AddCheckpoint(kPlotStart + seconds(3));
  return builder.Take();
}

JobSnapshot Snapshot(JobState state = JobState::kRunning) {
  Scene scene(ProgramSpec("train", {}));
  Job job = scene.job;
  job.owner = "user/ann";
  job.state = state;
  job.start_time = kPlotStart;
  job.attempt = 2;
  job.spec.argv.Edit() = {"python3", "train.py", "--name", "a b"};
  JobSnapshot snapshot;
  Attempt attempt;
  attempt.ordinal = 1;
  attempt.generation = 1;
  attempt.end_time = kPlotStart + seconds(5);
  job.attempts = {attempt};
  job.events = {
      {kPlotStart + seconds(6), 1, Reason::kNoProgress, "stands still"}};
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.time = kPlotStart + seconds(10);
  return snapshot;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(JobCurvesTest, ShowWhatIsKnownAndNothingElse) {
  Html html;
  AddJobCurves(*Snapshot().job, Plot(4), &html);
  const std::string& body = html.str();
  EXPECT_THAT(body,
              AllOf(HasSubstr("<b>loss</b>"), HasSubstr("<b>accuracy</b>"),
                    HasSubstr("<b>time of a step</b>"), HasSubstr("compute"),
                    HasSubstr("<b>CPU of each rank</b>"),
                    HasSubstr("least rank 2 1.00 cores, most rank 3 4.00")));
  EXPECT_THAT(body, AllOf(Not(HasSubstr("GPU")), Not(HasSubstr("memory")),
                          Not(HasSubstr("samples per second")),
                          Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  EXPECT_THAT(body, AllOf(HasSubstr("1 restart<"), HasSubstr("1 stall<"),
                          HasSubstr("1 checkpoint<")));
  EXPECT_EQ(Count(body, "<figure>"), Count(body, "</figure>"));
  EXPECT_EQ(Count(body, "<div"), Count(body, "</div>"));
}

// The gap begins a new part of the curve.
TEST(JobCurvesTest, AGapIsNotBridged) {
  const HistoryPlot plot = Plot(1);
  Html html;
  AddChart({.title = "loss", .curves = {{"loss", &plot.Of(JobSeries::kLoss)}}},
           {plot.start, plot.step, plot.points, {}}, &html);
  const std::string& body = html.str();
  const size_t path = body.find("class=\"l c0\" d=\"");
  ASSERT_NE(path, std::string::npos);
  const std::string d = body.substr(path, body.find('"', path + 20) - path);
  EXPECT_EQ(Count(d, "M"), 2U);
}

TEST(JobCurvesTest, APeakDoesNotFlattenTheRest) {
  const HistoryPlot plot = Plot(1);
  Html html;
  AddJobCurves(*Snapshot().job, plot, &html);
  EXPECT_THAT(html.str(), Not(HasSubstr(">1 m 30 s</span>")));
}

TEST(JobCurvesTest, ManyRanksAreSaid) {
  Html html;
  AddJobCurves(*Snapshot().job, Plot(200), &html);
  EXPECT_THAT(html.str(), HasSubstr("the first 128 ranks"));
}

TEST(JobCurvesTest, ComparedJobsKeepTheirColours) {
  HistoryPlot without_loss = Plot(1);
  without_loss.job[static_cast<size_t>(JobSeries::kLoss)].assign(10, kNoValue);
  const std::string body = ComparePage("lab", {"a", "b", "gone"},
                                       {{"a", without_loss}, {"b", Plot(1)}})
                               .body;
  EXPECT_THAT(body, AllOf(HasSubstr("There are no curves of gone."),
                          HasSubstr("<span class=\"k c1\">b 0.1</span>"),
                          HasSubstr("<span class=\"k c0\">a 4</span>")));
}

TEST(JobPageTest, AFailedJobBeginsWithItsCauseAndLastLines) {
  JobSnapshot snapshot = Snapshot(JobState::kFailed);
  Job job = *snapshot.job;
  job.cause = {Reason::kRankExit, "rank 0 ended with exit code 1"};
  TaskStatus task;
  task.ranks.resize(1);
  task.ranks[0].state = RankState::kExited;
  task.ranks[0].exit = Code(1);
  job.tasks = {task};
  snapshot.job = std::make_shared<const Job>(job);
  JobExtras extras;
  TailLine line;
  line.text = kPageMarkup;
  line.severity = Severity::kError;
  extras.last_lines = LogTail{{line}, false};
  const std::string body = JobPage("lab", kPageOwner, snapshot, extras).body;
  const size_t cause = body.find("It failed: rank 0 ended with exit code 1");
  ASSERT_NE(cause, std::string::npos);
  EXPECT_LT(cause, body.find(">FAILED<"));
  EXPECT_THAT(body, AllOf(HasSubstr(kPageEscaped),
                          HasSubstr("python3 train.py "
                                    "--name &quot;a b"),
                          Not(HasSubstr("http-equiv=\"refresh\""))));
}

// The rules of visibility.h: neither curves nor lines.
TEST(JobPageTest, StrangersSeeNoCurvesAndNoLines) {
  JobExtras extras;
  extras.history = Plot(2, "s3cret");
  TailLine line;
  line.text = "s3cret";
  extras.last_lines = LogTail{{line}, false};
  const JobSnapshot snapshot = Snapshot(JobState::kFailed);
  extras.bad_gpus = {"chief 0 uses GPU 1 of node a: Xid <79>"};
  EXPECT_THAT(JobPage("lab", kPageOwner, snapshot, extras).body,
              HasSubstr("<p class=\"bad\">chief 0 uses GPU 1 of node a: Xid "
                        "&lt;79&gt;</p>"));
  EXPECT_THAT(JobPage("lab", kPageOwner, snapshot, extras).body,
              AllOf(HasSubstr("s3cret"), HasSubstr("<svg")));
  const JobReader stranger = {.name = "user/bob", .sees_all = false};
  EXPECT_THAT(JobPage("lab", stranger, snapshot, extras).body,
              AllOf(Not(HasSubstr("s3cret")), Not(HasSubstr("<svg")),
                    Not(HasSubstr("python3")),
                    HasSubstr("Curves and logs are for the owner")));
}

TEST(JobPageTest, RecoveriesSayWhatWasLostAndHowLongItTook) {
  JobSnapshot snapshot = Snapshot();
  Job job = *snapshot.job;
  const WallTime start = kPlotStart + seconds(3);
  job.in_place_recoveries = {{1,
                              1,
                              start,
                              start + std::chrono::milliseconds(120),
                              {Reason::kRankSignal, "killed by SIGKILL"},
                              {1},
                              {1, 3},
                              {},
                              1204},
                             {1,
                              2,
                              start,
                              std::nullopt,
                              {Reason::kRecovering, ""},
                              {},
                              {},
                              {1, 3},
                              std::nullopt}};
  snapshot.job = std::make_shared<const Job>(job);
  const std::string body =
      JobPage("lab", kPageOwner, snapshot, JobExtras()).body;
  EXPECT_THAT(body, AllOf(HasSubstr("Recoveries in place"),
                          HasSubstr("killed by SIGKILL"), HasSubstr("1204"),
                          HasSubstr("120 ms"), HasSubstr("1, 3"),
                          HasSubstr("RECOVERING")));
}

TEST(JobPageTest, ShowsWhichRanksAreAway) {
  JobSnapshot snapshot = Snapshot();
  Job job = *snapshot.job;
  RankStatus away;
  away.rank = 7;
  away.state = RankState::kStarted;
  away.restarts = 1;
  away.away = true;
  job.tasks = {TaskStatus()};
  job.tasks[0].ranks = {away};
  snapshot.live.clear();
  snapshot.job = std::make_shared<const Job>(job);
  EXPECT_THAT(JobPage("lab", kPageOwner, snapshot, {}).body,
              HasSubstr("started, 1 restart, away"));
  ExitStatus& exit = job.tasks[0].ranks[0].exit.emplace();
  exit.how = ExitStatus::How::kSignal;
  exit.value = 15;
  exit.message = "stopped";
  snapshot.job = std::make_shared<const Job>(job);
  EXPECT_THAT(JobPage("lab", kPageOwner, snapshot, {}).body,
              HasSubstr("killed by SIGTERM: stopped, 1 restart, away"));
}

TEST(JobPageTest, ShowsTheSizeOfAJobThatMayHaveFewerTasks) {
  JobSnapshot snapshot = Snapshot();
  Job job = *snapshot.job;
  job.spec.roles.Edit() = {Role(TaskType::kChief, 1),
                           Role(TaskType::kWorker, 3)};
  job.spec.elastic_min_tasks = 2;
  job.tasks.resize(3);
  const char size[] = "3 of 4 tasks; may run with 2 to 4";
  const auto body = [&] {
    snapshot.job = std::make_shared<const Job>(job);
    return JobPage("lab", kPageOwner, snapshot, {}).body;
  };
  EXPECT_THAT(body(), Not(HasSubstr(size)));
  job.spec.rescale = true;
  EXPECT_THAT(body(), HasSubstr(size));
}

TEST(JobPageTest, NamesOfValuesAreOnlyText) {
  JobExtras extras;
  extras.history = Plot(2, kPageMarkup);
  const std::string body = JobPage("lab", kPageOwner, Snapshot(), extras).body;
  EXPECT_THAT(body, AllOf(HasSubstr(kPageEscaped), Not(HasSubstr("<script")),
                          Not(HasSubstr("onload='"))));
}

TEST(LogsPageTest, LinesAreOnlyTextWithoutColours) {
  TailLine line;
  line.text = std::string("\x1b[31mred\x1b[0m ") + kPageMarkup;
  LogsQuery query;
  query.selection.grep = kPageMarkup;
  const std::string body =
      LogsPage("lab", *Snapshot().job, query, {{line}, true}).body;
  EXPECT_THAT(body, AllOf(HasSubstr("red &lt;script"), HasSubstr(kPageEscaped),
                          HasSubstr("lockstep jobs logs train"),
                          Not(HasSubstr("[31m")), Not(HasSubstr("<script"))));
}

TEST(LogsPageTest, TheNewestAttemptIsReadUnlessAnotherIsAsked) {
  Job job = *Snapshot().job;
  TaskStatus task;
  task.ranks.resize(2);
  task.ranks[1].rank = 1;
  job.tasks = {task};
  job.generation = 7;
  job.attempts[0].tasks = {task};
  LogsQuery query;
  EXPECT_THAT(*SelectLogs(job, query),
              ElementsAre(LogKey{job.uid, 7, 0}, LogKey{job.uid, 7, 1}));
  query.attempt = 1;
  query.rank = 1;
  EXPECT_THAT(*SelectLogs(job, query), ElementsAre(LogKey{job.uid, 1, 1}));
  // A rank that has moved has a log of each node.
  job.tasks[0].former_nodes = {"a"};
  query.attempt = 0;
  EXPECT_THAT(*SelectLogs(job, query),
              ElementsAre(LogKey{job.uid, 7, 1}, LogKey{job.uid, 7, 1, 1}));
  query.attempt = 9;
  EXPECT_THAT(Message(SelectLogs(job, query).status()),
              HasSubstr("attempt: job train has 2 so far, not 9"));
  query = {};
  query.rank = 5;
  EXPECT_THAT(Message(SelectLogs(job, query).status()),
              HasSubstr("rank: job train has no rank 5"));
}

TEST(LogsPageTest, AFilterSelectsByTaskRankAndText) {
  Job job = *Snapshot().job;
  TaskStatus chief;
  chief.ranks.resize(1);
  TaskStatus worker;
  worker.type = TaskType::kWorker;
  worker.index = 1;
  worker.ranks.resize(1);
  worker.ranks[0].rank = 2;
  job.tasks = {chief, worker};
  const auto wants = [&](const std::string& filter, int32_t rank) {
    const auto query = ParseLogsQuery({{"filter", filter}});
    EXPECT_TRUE(query.ok()) << query.status();
    const LineSelector selector(job, *query, *LogFilter::Make({}));
    TailLine line;
    line.rank = rank;
    line.severity = Severity::kError;
    line.text = "loss is nan";
    return selector.Wants(line);
  };
  EXPECT_TRUE(wants(
      "resource.labels.task_name=\"worker-replica-1\" severity>=ERROR", 2));
  EXPECT_FALSE(wants("resource.labels.task_name=\"worker-replica-1\"", 0));
  EXPECT_TRUE(wants("textPayload:nan -labels.rank=0", 2));
  EXPECT_FALSE(wants("textPayload:nan -labels.rank=0", 0));
  EXPECT_TRUE(wants("labels.attempt=2 labels.stream=stdout", 0));
  EXPECT_FALSE(wants("textPayload:other", 0));
}

TEST(WhyPageTest, ShowsVerdictGroupsAndHints) {
  EvidenceCalls::Evidence evidence;
  evidence.judged.ranks.resize(2);
  evidence.judged.verdict.sentence = "rank 1 waits in next (train.py:88)";
  evidence.judged.verdict.hints = {kPageMarkup};
  StackGroup group;
  group.ranks = {1};
  group.odd = true;
  group.position.frames = {{"m", "next", "train.py", 88, false}};
  evidence.judged.groups = {group};
  evidence.notes = {"node b does not answer"};
  const http::HttpResponse page =
      WhyPage("lab", Snapshot(),
              {{"Now", "now=1", evidence},
               {"Before", "attempt=2", NotFound("nothing is kept")}},
              {1});
  EXPECT_THAT(
      page.body,
      AllOf(HasSubstr("rank 1 waits in next (train.py:88)"),
            HasSubstr("(not where most are)"), HasSubstr("next  train.py:88"),
            HasSubstr(kPageEscaped), HasSubstr("node b does not answer"),
            HasSubstr("/evidence.json?now=1\" download"),
            HasSubstr("/why?attempt=1\""), HasSubstr("nothing is kept"),
            Not(HasSubstr("<script"))));
}

TEST(PageQueryTest, GoodOnesAreRead) {
  EXPECT_EQ(ParseSpan({})->name, "all");
  EXPECT_EQ(ParseSpan({{"span", "1h"}})->length, std::chrono::hours(1));
  EXPECT_THAT(
      *ParseCompared({{"job", "b"}, {"job", ""}, {"job", "a"}, {"job", "b"}}),
      ElementsAre("b", "a"));
  EXPECT_TRUE(ParseWhy({{"now", "1"}})->now);
  EXPECT_EQ(ParseWhy({{"attempt", "2"}})->attempt, 2);
  EXPECT_FALSE(ParseWhy({{"attempt", "0"}}).ok());
  const auto logs = ParseLogsQuery({{"rank", "3"},
                                    {"severity", "Error"},
                                    {"grep", "loss=[0-9]"},
                                    {"tail", ""},
                                    {"attempt", "2"},
                                    {"follow", "1"}});
  ASSERT_TRUE(logs.ok()) << logs.status();
  EXPECT_EQ(logs->rank, 3);
  EXPECT_EQ(logs->attempt, 2);
  EXPECT_EQ(logs->tail, 200U);
  EXPECT_TRUE(logs->follow);
  EXPECT_EQ(logs->selection.min_severity, Severity::kError);
}

TEST(PageQueryTest, BadOnesGetASentence) {
  const auto logs = [](const Parameters& parameters) {
    return Message(ParseLogsQuery(parameters).status());
  };
  EXPECT_THAT(Message(ParseSpan({{"span", "2h"}}).status()),
              HasSubstr("span: must be one of 15m, 1h, 6h, 1d, 7d, all, not "
                        "\"2h\""));
  EXPECT_THAT(Message(ParseSpan({{"x", "2h"}}).status()),
              HasSubstr("x is not a parameter of this page, which has span"));
  EXPECT_THAT(Message(ParseSpan({{"span", "1h"}, {"span", "6h"}}).status()),
              HasSubstr("span: is given twice"));
  EXPECT_THAT(Message(ParseCompared({}).status()), HasSubstr("job: name one"));
  EXPECT_THAT(Message(ParseCompared({{"job", "a"},
                                     {"job", "b"},
                                     {"job", "c"},
                                     {"job", "d"},
                                     {"job", "e"},
                                     {"job", "f"}})
                          .status()),
              HasSubstr("not 6"));
  EXPECT_THAT(logs({{"rank", "-1"}}), HasSubstr("rank: must be a number"));
  EXPECT_THAT(logs({{"rank", "1x"}}), HasSubstr("not \"1x\""));
  EXPECT_THAT(logs({{"tail", "99999999999999999999"}}),
              HasSubstr("tail: must be a number from 1 to 2000"));
  EXPECT_THAT(logs({{"severity", "loud"}}), HasSubstr("severity: must be"));
  EXPECT_THAT(logs({{"filter", "severity>=BAD"}}),
              HasSubstr("filter: column 11: \"BAD\" is not a severity"));
  EXPECT_THAT(logs({{"grep", "("}}), HasSubstr("grep: "));
  EXPECT_THAT(logs({{"grep", std::string(1001, 'x')}}),
              HasSubstr("grep: has 1001 bytes; at most 1000"));
  EXPECT_THAT(logs({{"follow", "yes"}}), HasSubstr("follow: must be 0 or 1"));
}

}  // namespace
}  // namespace lockstep::server
