#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "client/cli/describe.h"
#include "client/cli/job_view.h"
#include "client/cli/progress.h"
#include "client/cli/summary.h"
#include "client/lib/client.h"
#include "common/model/resources.h"

namespace lockstep {
namespace {

std::string Row(const std::string& label, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("{:<12} {}\n", label, text);
}

std::string Section(const std::string& title, const std::string& body,
                    const Style& style) {
  if (body.empty()) return "";
  return "\n" + style.Bold(title) + "\n" + body;
}

std::string Indent(const std::string& text) {
  std::string out;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1);
    out += "  " + text.substr(begin, end + 1 - begin);
    begin = end + 1;
  }
  return out;
}

std::string StepsText(const v1::Job& job) {
  int64_t step = std::max<int64_t>(0, job.committed_step());
  int64_t total = 0;
  if (job.has_progress()) {
    step = std::max(step, job.progress().chief().committed_step());
    total = job.progress().chief().total_steps();
  }
  if (step == 0 && total == 0) return "-";
  return total > 0 ? fmt::format("{}/{}", Grouped(step), Grouped(total))
                   : Grouped(step);
}

// How long it ran, from the first RUNNING on.
std::string RunningText(const v1::Job& job, WallTime now) {
  if (!job.has_start_time()) return "-";
  const WallTime end = job.has_end_time() ? ToWallTime(job.end_time()) : now;
  return Age(end - ToWallTime(job.start_time()));
}

std::string RoleText(const v1::RoleSpec& role) {
  const v1::Resources& r = role.resources();
  Resources resources;
  resources.cpus = r.cpus();
  resources.memory_bytes = r.memory_bytes();
  resources.gpus = r.gpus();
  resources.gpu_type = Printable(r.gpu_type());
  std::string text = fmt::format("{} {}", role.count(), Text(role.type()));
  if (role.ranks_per_task() > 1) {
    text += fmt::format(" of {} ranks", role.ranks_per_task());
  }
  return text + " (" + Describe(resources) + " each)";
}

std::string RolesText(const v1::JobSpec& spec) {
  std::string text;
  for (const v1::RoleSpec& role : spec.roles()) {
    if (!text.empty()) text += ", ";
    text += RoleText(role);
  }
  return text;
}

std::string RankStateText(const v1::RankStatus& rank) {
  if (rank.has_exit()) return DescribeExit(rank.exit());
  std::string text = Text(rank.state());
  if (!rank.progress().phase().empty()) {
    text += " (" + Printable(rank.progress().phase()) + ")";
  }
  return text;
}

// Now, or at most when it has ended.
std::string MemoryText(const v1::Usage& usage) {
  const int64_t bytes = usage.memory_bytes() > 0 ? usage.memory_bytes()
                                                 : usage.memory_peak_bytes();
  return bytes > 0 ? FormatBytes(bytes) : "-";
}

// Where: one row a rank of the current or last attempt.
std::string RanksTable(const v1::Job& job) {
  std::vector<std::vector<std::string>> rows;
  for (const RankView& view : LastRanks(job)) {
    const v1::Usage& usage = view.rank->usage();
    rows.push_back(
        {fmt::format("{}", view.rank->rank()), TaskText(*view.task),
         view.task->node(), RankStateText(*view.rank),
         view.rank->progress().committed_step() > 0
             ? Grouped(view.rank->progress().committed_step())
             : "-",
         usage.seconds() > 0 ? fmt::format("{:.2f} cores", usage.cpu_seconds() /
                                                               usage.seconds())
                             : "-",
         MemoryText(usage),
         view.task->gpus().empty()
             ? "-"
             : fmt::format("{}", fmt::join(view.task->gpus(), ","))});
  }
  if (rows.empty()) {
    return job.tasks().empty() ? "" : FormatPlacement(job.tasks());
  }
  return RenderTable(
      {"RANK", "TASK", "NODE", "STATE", "STEP", "CPU", "MEMORY", "GPUS"}, rows);
}

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
         Printable(attempt.end_cause().message())});
  }
  if (rows.empty()) return "";
  return RenderTable(
      {"ATTEMPT", "GENERATION", "STARTED", "TOOK", "FROM STEP", "ENDED"}, rows);
}

std::string StateRows(const v1::Job& job, WallTime now, const Style& style) {
  std::string text = Row("state", style.State(job.state()));
  std::string cause = Printable(job.cause().message());
  // A reason that only says the state again is left out.
  if (job.cause().reason() != v1::REASON_UNSPECIFIED &&
      Text(job.cause().reason()) != Text(job.state())) {
    cause = fmt::format("{}{}{}", Text(job.cause().reason()),
                        cause.empty() ? "" : ": ", cause);
  }
  text += Row("why", cause);
  if (job.has_state_time()) {
    text += Row("since",
                fmt::format("{} ({} ago)", TimeText(true, job.state_time()),
                            Age(now - ToWallTime(job.state_time()))));
  }
  text += Row("submitted",
              TimeText(job.has_create_time(), job.create_time()) +
                  (job.owner().empty() ? "" : " by " + Printable(job.owner())));
  if (job.has_start_time()) {
    text += Row("running", "since " + TimeText(true, job.start_time()));
  }
  if (job.has_end_time()) text += Row("ended", TimeText(true, job.end_time()));
  return text + Row("phases", PhasesText(job));
}

std::string SpecRows(const v1::JobSpec& spec) {
  std::string argv;
  for (const std::string& arg : spec.argv()) {
    argv += (argv.empty() ? "" : " ") + Printable(arg);
  }
  std::string text = Row("kind", Text(spec.kind()));
  text += Row("tasks", RolesText(spec));
  text += Row("program", argv);
  text += Row("output", Printable(spec.output_directory()));
  std::vector<std::string> labels;
  for (const auto& [key, value] : spec.labels()) {
    labels.push_back(Printable(key + "=" + value));
  }
  std::sort(labels.begin(), labels.end());
  text += Row("labels", fmt::format("{}", fmt::join(labels, ", ")));
  return text + Row("comment", Printable(spec.comment()));
}

// How old it is, and what a failure now would cost.
std::string CheckpointRow(const v1::Job& job, WallTime now) {
  if (!job.has_last_checkpoint()) return "";
  const v1::Checkpoint& c = job.last_checkpoint();
  std::string text = "step " + Grouped(c.step());
  if (c.has_time() && !IsFinalState(job.state())) {
    text += ", " + Age(now - ToWallTime(c.time())) + " ago";
  }
  if (c.bytes() > 0) text += ", " + FormatBytes(c.bytes());
  text += ", in " + Printable(c.path());
  const int64_t since = job.progress().chief().committed_step() - c.step();
  if (!IsFinalState(job.state()) && job.has_progress() && since > 0) {
    text +=
        fmt::format("; a failure now would repeat {}", Count(since, "step"));
  }
  return text;
}

std::string SpeedRows(const v1::Job& job, WallTime now) {
  std::string text;
  if (job.has_progress() && !IsFinalState(job.state())) {
    text += Row("progress", ProgressText(job.progress()));
  }
  text += Row("training", TrainingText(job));
  text += Row("values", ValuesText(job));
  text += Row("step time", StepTimeText(job));
  text += Row("waiting", StragglerText(job));
  text += Row("checkpoint", CheckpointRow(job, now));
  std::vector<std::pair<std::string, std::string>> artifacts(
      job.artifacts().begin(), job.artifacts().end());
  std::sort(artifacts.begin(), artifacts.end());
  for (const auto& [name, path] : artifacts) {
    text += Row(Printable(name), Printable(path));
  }
  return text;
}

}  // namespace

Table JobsTable(const std::vector<v1::Job>& jobs, bool wide, WallTime now,
                const Style& style) {
  std::vector<std::string> header = {"NAME", "STATE", "TASKS",
                                     "STEP", "RAN",   "AGE"};
  if (wide) {
    header.insert(header.end(),
                  {"KIND", "RANKS", "PRIORITY", "RESTARTS", "OWNER"});
  }
  header.push_back("WHY");
  std::vector<std::vector<std::string>> rows;
  for (const v1::Job& job : jobs) {
    std::vector<std::string> row = {
        Printable(job.name()),
        style.State(job.state()),
        fmt::format("{}", TaskCount(job.spec())),
        StepsText(job),
        RunningText(job, now),
        job.has_create_time() ? Age(now - ToWallTime(job.create_time())) : "-"};
    if (wide) {
      row.push_back(Text(job.spec().kind()));
      row.push_back(fmt::format("{}", RankCount(job.spec())));
      row.push_back(fmt::format("{}", job.spec().priority()));
      row.push_back(fmt::format("{}", job.restarts()));
      row.push_back(Printable(job.owner()));
    }
    const bool tells = job.state() != v1::JOB_STATE_RUNNING &&
                       job.state() != v1::JOB_STATE_SUCCEEDED;
    row.push_back(tells ? Printable(job.cause().message()) : "");
    rows.push_back(std::move(row));
  }
  return {header, rows};
}

std::string FormatJob(const v1::Job& job, WallTime now, const Style& style) {
  std::string text = Row("job", style.Bold(Printable(job.name())));
  text += StateRows(job, now, style);
  // While it waits for nodes it is nowhere: these are the last attempt's.
  if (job.state() != v1::JOB_STATE_QUEUED &&
      job.state() != v1::JOB_STATE_PLACING) {
    text += Section("Where", Indent(RanksTable(job)), style);
  }
  text += Section("How fast", Indent(SpeedRows(job, now)), style);
  const std::string usage = UsageText(job);
  text +=
      Section("What it uses", usage.empty() ? "" : Indent(usage + "\n"), style);
  const std::string bill = BillText(job);
  text +=
      Section("What it costs", bill.empty() ? "" : Indent(bill + "\n"), style);
  text += Section("What it is", Indent(SpecRows(job.spec())), style);
  text += Section("Attempts", Indent(AttemptsText(job)), style);
  return text + Section("What happened",
                        Indent(FormatEvents(job.events(), true)), style);
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

}  // namespace lockstep
