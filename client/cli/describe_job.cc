#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "client/cli/describe.h"
#include "client/cli/describe_spec.h"
#include "client/cli/describe_tasks.h"
#include "client/cli/job_resource.h"
#include "client/cli/job_view.h"
#include "client/cli/progress.h"
#include "client/cli/signs_text.h"
#include "client/cli/summary.h"
#include "client/cli/usage.h"
#include "client/lib/client.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

// Younger reports show no age. They arrive twice per second.
constexpr Duration kStaleReport = std::chrono::seconds(5);

std::string AttemptsText(const v1::Job& job) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::Attempt& attempt : job.attempts()) {
    rows.push_back(
        {fmt::format("{}", attempt.ordinal()),
         fmt::format("{}", attempt.generation()),
         TimeText(attempt.has_start_time(), attempt.start_time()),
         attempt.has_end_time()
             ? FormatDuration(ToWallTime(attempt.end_time()) -
                              ToWallTime(attempt.start_time()))
             : "-",
         attempt.has_resumed_step() ? Grouped(attempt.resumed_step()) : "-",
         CauseText(job, attempt.end_cause())});
  }
  if (AttemptGoesOn(job)) {
    const auto start = CurrentStart(job);
    rows.push_back({fmt::format("{}", job.attempt()),
                    fmt::format("{}", job.generation()),
                    start ? TimeText(true, *start) : "-", "-",
                    job.has_resumed_step() ? Grouped(job.resumed_step()) : "-",
                    "continues: " + Text(job.state())});
  }
  if (rows.empty()) return "";
  return RenderTable(
      {"ATTEMPT", "GENERATION", "STARTED", "TOOK", "FROM STEP", "ENDED"}, rows);
}

std::string RanksText(const google::protobuf::RepeatedField<int32_t>& ranks) {
  return ranks.empty() ? "-" : fmt::format("{}", fmt::join(ranks, ","));
}

std::string RecoveriesText(const v1::Job& job) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::InPlaceRecovery& recovery : job.in_place_recoveries()) {
    const bool is_last = &recovery == &*job.in_place_recoveries().rbegin();
    rows.push_back({fmt::format("{}", recovery.generation()),
                    fmt::format("{}", recovery.number()),
                    TimeText(recovery.has_start_time(), recovery.start_time()),
                    recovery.has_end_time()
                        ? FormatDuration(ToWallTime(recovery.end_time()) -
                                         ToWallTime(recovery.start_time()))
                    : is_last ? "-"
                              : "unfinished",
                    recovery.has_step() ? Grouped(recovery.step()) : "-",
                    RanksText(recovery.replaced_ranks()),
                    RanksText(recovery.away_ranks()),
                    RanksText(recovery.returned_ranks()),
                    CauseText(job, recovery.cause())});
  }
  if (rows.empty()) return "";
  return RenderTable({"GENERATION", "RECOVERY", "STARTED", "TOOK", "AFTER STEP",
                      "NEW RANKS", "AWAY", "BACK", "WHY"},
                     rows);
}

std::string StateRows(const v1::Job& job, WallTime now, const Style& style,
                      const std::vector<std::string>& bad_gpus) {
  std::string state = style.State(job.state());
  const std::string theirs = ResourceState(job);
  if (job.has_training() && theirs != Text(job.state())) {
    state += fmt::format(" (of AI Platform's seven: {})", theirs);
  }
  std::string text = DescribeRow("state", state);
  for (const std::string& bad : bad_gpus) {
    text += DescribeRow("bad gpu", style.Red(bad));
  }
  std::string cause = Printable(job.cause().message());
  // Omits a reason that only repeats the state.
  if (job.cause().reason() != v1::REASON_UNSPECIFIED &&
      Text(job.cause().reason()) != Text(job.state())) {
    cause = fmt::format("{}{}{}", Text(job.cause().reason()),
                        cause.empty() ? "" : ": ", cause);
  }
  text += DescribeRow("why", cause);
  text += DescribeRow("not shown", HiddenText(job));
  if (job.has_state_time()) {
    text += DescribeRow(
        "since", fmt::format("{} ({} ago)", TimeText(true, job.state_time()),
                             Age(now - ToWallTime(job.state_time()))));
  }
  if (job.queue_position() > 0) {
    text +=
        DescribeRow("queue", fmt::format("position {}", job.queue_position()));
  }
  if (job.has_expected_start_time()) {
    const WallTime start = ToWallTime(job.expected_start_time());
    text += DescribeRow(
        "expected",
        start <= now
            ? std::string("to start soon")
            : fmt::format("to start in {}, if those that hold what it needs "
                          "run as long as they say",
                          Age(start - now)));
  }
  text += DescribeRow(
      "submitted",
      TimeText(job.has_create_time(), job.create_time()) +
          (job.owner().empty() ? "" : " by " + Printable(job.owner())));
  if (job.has_start_time()) {
    text += DescribeRow("running", "since " + TimeText(true, job.start_time()));
  }
  if (job.has_end_time())
    text += DescribeRow("ended", TimeText(true, job.end_time()));
  std::string phases;
  for (const auto& [phase, took] : PhasesUntil(job, now)) {
    phases += fmt::format("{}{} {}", phases.empty() ? "" : ", ", phase,
                          FormatDuration(took));
  }
  return text + DescribeRow("phases", phases);
}

// Shows its age, and what a failure now would cost.
std::string CheckpointRow(const v1::Job& job, WallTime now) {
  if (!job.has_last_checkpoint()) return "";
  const v1::Checkpoint& c = job.last_checkpoint();
  std::string text = "step " + Grouped(c.step());
  if (c.has_time() && !IsFinalState(job.state())) {
    text += ", " + Age(now - ToWallTime(c.time())) + " ago";
  }
  if (c.bytes() > 0) text += ", " + FormatBytes(c.bytes());
  if (!c.path().empty()) text += ", in " + Printable(c.path());
  const int64_t since = job.progress().chief().committed_step() - c.step();
  if (!IsFinalState(job.state()) && job.has_progress() && since > 0) {
    text +=
        fmt::format("; a failure now would repeat {}", Count(since, "step"));
  }
  return text;
}

// Returns the minimum age of the newest report of a running job's chief.
// Reports of a silent host or a stalled rank are old. Older coordinators do not
// give the report's time, but how long the rank had run by then.
Duration ReportAge(const v1::Job& job, WallTime now) {
  if (job.state() != v1::JOB_STATE_RUNNING) return {};
  if (job.progress().has_time()) {
    return now - ToWallTime(job.progress().time());
  }
  for (const RankView& view : LastRanks(job)) {
    const v1::RankStatus& rank = *view.rank;
    if (rank.rank() != 0 || rank.usage().seconds() <= 0) continue;
    // A rank that restarted alone runs only since then.
    if (rank.has_exit() || rank.restarts() > 0) return {};
    return now - ToWallTime(job.state_time()) -
           Seconds(std::min(rank.usage().seconds(), 1e9));
  }
  return {};
}

std::string ProgressRow(const v1::Job& job, WallTime now) {
  if (!job.has_progress() || IsFinalState(job.state())) return "";
  // A program without reports has no step.
  const v1::RankProgress& chief = job.progress().chief();
  if (job.spec().kind() == v1::JOB_KIND_PROGRAM && chief.step() <= 0 &&
      chief.committed_step() <= 0 && chief.total_steps() <= 0) {
    return "";
  }
  std::string text = ProgressText(job.progress(), !job.details_hidden());
  const Duration age = ReportAge(job, now);
  if (age >= kStaleReport) text += fmt::format("  (as of {} ago)", Age(age));
  return DescribeRow("progress", text);
}

std::string SpeedRows(const v1::Job& job, WallTime now) {
  const std::string progress = ProgressRow(job, now);
  std::string text = progress;
  text += DescribeRow("seen by", SignsText(job));
  text += DescribeRow("training", TrainingText(job));
  // The progress already has a newer loss.
  text += DescribeRow("values", ValuesText(job, progress.empty()));
  text += DescribeRow("mean step", StepTimeText(job));
  text += DescribeRow("waiting", StragglerText(job));
  text += DescribeRow("checkpoint", CheckpointRow(job, now));
  std::vector<std::pair<std::string, std::string>> artifacts(
      job.artifacts().begin(), job.artifacts().end());
  std::sort(artifacts.begin(), artifacts.end());
  for (const auto& [name, path] : artifacts) {
    text += DescribeRow(Printable(name), Printable(path));
  }
  return text;
}

// As `lockstep usage` shows it, of the whole job.
std::string HeldAndUsed(const v1::Job& job, WallTime now) {
  if (!job.has_bill() || job.details_hidden()) return "";
  UsageSum sum;
  sum.Add(job, {.since = WallTime::min(), .now = now});
  Table table = UsageTable({{job.name(), sum}}, UsageBy::kJob);
  // This page is of one job.
  for (auto* row : {&table.header, &table.rows.front()}) {
    row->erase(row->begin(), row->begin() + 2);
  }
  return RenderTable(table);
}

}  // namespace

std::string FormatJob(const v1::Job& job, WallTime now, const Style& style,
                      const std::vector<std::string>& bad_gpus) {
  std::string text = DescribeRow("job", style.Bold(Printable(job.name())));
  text += StateRows(job, now, style, bad_gpus);
  // A waiting job has no place; these are the last attempt's.
  if (job.state() != v1::JOB_STATE_QUEUED &&
      job.state() != v1::JOB_STATE_PLACING) {
    text += DescribeSection("Where", RanksTable(job), style);
    text += DescribeSection("Getting ready", PreparationTable(job), style);
  }
  text += DescribeSection("How fast", SpeedRows(job, now), style);
  const std::string usage = UsageText(job);
  text += DescribeSection(
      "What it uses",
      usage.empty() ? ""
                    : usage + "\n" + UseTable(job) +
                          "network not counted: tasks use that of their host\n",
      style);
  text += DescribeSection("What it costs",
                          CostRows(job) + HeldAndUsed(job, now), style);
  text +=
      DescribeSection("What it left", OutputsText(job) + WorkText(job), style);
  text += DescribeSection("What it is",
                          SpecRows(job.spec()) + SizeRow(job) + SparesRow(job) +
                              ImageRows(job) + ReductionRow(job),
                          style);
  text += DescribeSection("Attempts", AttemptsText(job), style);
  text += DescribeSection("Recoveries", RecoveriesText(job), style);
  return text + DescribeSection("What happened",
                                FormatEvents(job.events(), true), style);
}

std::string FormatEvents(
    const google::protobuf::RepeatedPtrField<v1::Event>& events,
    bool generations) {
  Table table{{"TIME"}, {}};
  if (generations) table.header.push_back("GENERATION");
  table.header.insert(table.header.end(), {"REASON", "WHAT"});
  for (const v1::Event& event : events) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(TimeText(event.has_time(), event.time()));
    if (generations) row.push_back(fmt::format("{}", event.generation()));
    row.push_back(
        event.reason() == v1::REASON_UNSPECIFIED ? "-" : Text(event.reason()));
    row.push_back(Printable(event.message()));
  }
  return table.rows.empty() ? "" : RenderTable(table);
}

std::string FormatPlacement(
    const google::protobuf::RepeatedPtrField<v1::TaskStatus>& tasks) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::TaskStatus& task : tasks) {
    rows.push_back({TaskText(task), task.node(),
                    task.gpus().empty()
                        ? "-"
                        : fmt::format("{}", fmt::join(task.gpus(), ","))});
  }
  return RenderTable({"TASK", "NODE", "GPUS"}, rows);
}

}  // namespace lockstep::cli
