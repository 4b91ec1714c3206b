#include <fmt/format.h>

#include <memory>
#include <ostream>
#include <utility>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/live_output.h"
#include "client/cli/log_text.h"
#include "client/cli/lost_logs.h"
#include "client/cli/parse.h"
#include "common/logs/log_query.h"

namespace lockstep::cli {
namespace {

struct LogsFlags {
  LogOptions log;
  LogFormat format;
  std::string output = "text";
  std::string ranks;
  std::string since;
  std::string until;
  std::string severity;
  std::string filter;
};

Status ReadOptions(WallTime now, LogsFlags* options) {
  LogOptions& log = options->log;
  if (!options->ranks.empty()) {
    const auto ranks = ParseRanks(options->ranks);
    if (!ranks.ok()) return Annotate(ranks.status(), "--rank");
    log.ranks = *ranks;
  }
  if (!options->since.empty()) {
    const auto since = ParseSince(options->since, now);
    if (!since.ok()) return Annotate(since.status(), "--since");
    log.since = *since;
  }
  if (!options->until.empty()) {
    const auto until = ParseSince(options->until, now);
    if (!until.ok()) return Annotate(until.status(), "--until");
    log.until = *until;
  }
  if (!options->severity.empty()) {
    const auto severity = ParseLogSeverity(options->severity);
    if (!severity.ok()) return Annotate(severity.status(), "--severity");
    log.min_severity = static_cast<v1::Severity>(*severity);
  }
  return OkStatus();
}

LogEntry EntryOf(const std::string& job, const v1::LogLine& line) {
  return {.job = job,
          .task = line.task(),
          .text = line.text(),
          .stream = line.stream(),
          .severity = line.severity(),
          .unix_nanos = ToUnixNanos(ToWallTime(line.time())),
          .rank = line.rank(),
          .attempt = line.attempt()};
}

// Narrows `log` by the parts of the query that the coordinator can evaluate.
// Returns true if those are all parts.
bool Narrow(const LogQuery& query, LogOptions* log) {
  LogBounds bounds;
  bounds.tasks = log->tasks;
  if (log->since) bounds.since = ToUnixNanos(*log->since);
  if (log->until) bounds.until = ToUnixNanos(*log->until);
  bounds.min_severity = log->min_severity;
  bounds.grep = log->grep;
  bounds.attempt = log->attempt;
  const bool all = query.Narrow(log->name, &bounds);
  log->tasks = std::move(bounds.tasks);
  if (bounds.since) log->since = FromUnixNanos(*bounds.since);
  if (bounds.until) log->until = FromUnixNanos(*bounds.until);
  log->min_severity = static_cast<v1::Severity>(bounds.min_severity);
  log->grep = std::move(bounds.grep);
  log->attempt = bounds.attempt;
  return all;
}

// Prints why each incomplete log is incomplete. Returns their number.
int PrintLostLogs(const Cli& cli, Client* client, const LogOptions& log) {
  const auto job = client->GetJob(log.name);
  // The lines alone are enough.
  if (!job.ok() || !HasOpenLogs(*job, log)) return 0;
  const auto nodes = client->ListNodes();
  if (!nodes.ok()) return 0;
  const std::vector<std::string> lost = LostLogs(*job, *nodes, log);
  *cli.env->out << std::flush;
  for (const std::string& sentence : lost) {
    *cli.env->err << "lockstep: " << sentence << "\n";
  }
  return static_cast<int>(lost.size());
}

StatusOr<int> RunLogs(const Cli& cli, LogsFlags options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_RETURN_IF_ERROR(ReadOptions(env->clock->Now().wall, &options));
  LogQuery query;
  if (!options.filter.empty()) {
    auto parsed = LogQuery::Parse(options.filter);
    if (!parsed.ok()) return Annotate(parsed.status(), "--filter");
    query = *std::move(parsed);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LogOptions& log = options.log;
  LOCKSTEP_ASSIGN_OR_RETURN(log.name, FindJob(client.get(), log.name));
  if (!Narrow(query, &log) && log.tail > 0) {
    return InvalidArgument(
        "--tail counts lines before this --filter applies; leave one "
        "out, or filter by task_name, severity>=, timestamp and one "
        "textPayload");
  }
  LiveOutput output(env);
  log.on_interrupted = [&](const Status& status) {
    output.PrintNote(
        fmt::format("lockstep: the coordinator is unavailable ({}); retrying\n",
                    Message(status)));
  };
  if (log.follow && env->end_with_reader) env->end_with_reader();
  // A program that reads JSON wants each line once.
  log.partial_lines = log.follow && options.output != "json";
  const Style style = cli.OutStyle();
  const Status status = client->StreamLogs(
      log,
      [&](const v1::LogLine& line) {
        if (!query.Matches(EntryOf(log.name, line))) return true;
        const std::string shown =
            options.output == "json"
                ? FormatLogJson(log.name, line)
                : FormatLogLine(line, options.format, style);
        // Written at once for a live reader; a closed pipe ends it.
        if (log.follow) return output.Write(line, shown);
        *env->out << shown;
        return env->out->good();
      },
      nullptr);
  output.Finish();
  LOCKSTEP_RETURN_IF_ERROR(status);
  return PrintLostLogs(cli, client.get(), log) > 0 ? kExitError : 0;
}

// Adds the flags that select lines.
void AddSelection(Command* command, LogsFlags* options) {
  LogOptions* const log = &options->log;
  command->Add("--rank RANKS", &options->ranks,
               "Only these ranks, as 0-3,5 (default: all)");
  command->Add(
      "--task TASKS", &log->tasks,
      "Only these tasks, as worker-replica-1,service (default: all but "
      "the service)",
      SplitAt(','));
  command->Add("--events", &log->include_events,
               "Also the job's events, as lines of the task service");
  command->Add("--attempt", &log->attempt,
               "Only this attempt, from 1 (default: all)", AtLeast(1));
  command->Add("--tail", &log->tail,
               "The last N lines of each rank, at least 1 (default: all)",
               AtLeast(1));
  command->Add(
      "--since TIME", &options->since,
      "Only lines after this time, as 10m (ago) or 2026-01-31T12:00:00Z");
  command->Add("--until TIME", &options->until,
               "Only lines up to this time, as --since");
  command->Add("--grep PATTERN", &log->grep,
               "Only lines that match this regular expression (RE2); "
               "prefix (?i) to ignore case");
  command->Add("--severity SEVERITY", &options->severity,
               "Only lines of this severity or worse, inferred from the text",
               OneOf({"debug", "info", "warning", "error", "critical"}),
               AnyCase);
  command->Add(
      "--filter QUERY", &options->filter,
      "A query as in AI Platform: fields resource.labels.task_name (or "
      "labels.\"ml.googleapis.com/task_name\"), severity, textPayload (or "
      "jsonPayload.message), timestamp, labels.rank, labels.attempt, "
      "labels.stream, resource.type; = != : =~ !~ < <= > >=; AND, OR, NOT and "
      "brackets");
}

}  // namespace

Command JobsLogsCommand(Cli* cli) {
  const auto options = std::make_shared<LogsFlags>();
  Command command = LeafCommand(
      "logs", "Print the stdout and stderr of a job's ranks",
      "  lockstep jobs logs fashion --rank 0 --tail 20\n"
      "  lockstep jobs logs -f fashion --prefix --since 10m\n"
      "  lockstep jobs logs fashion --task worker-replica-1 --severity error\n"
      "  lockstep jobs logs fashion --grep 'loss=nan' -o json | jq "
      ".textPayload\n"
      "  lockstep jobs logs fashion --filter "
      "'resource.labels.task_name=\"worker-replica-1\" severity>=ERROR'\n\n"
      "Lines of all ranks are merged by time, each rank's in order; with -f\n"
      "a rank's line waits up to 0.3 s for older lines of others. -f\n"
      "follows a queued job, too, and shows lines that are unfinished, such\n"
      "as progress bars: on a terminal they are redrawn, elsewhere each is\n"
      "printed at most once per second. Returns 0, or 1 if a log is\n"
      "incomplete because its node is silent.");
  AddJobArgument(&command, &options->log.name);
  AddSelection(&command, options.get());
  command.Add("-f,--follow", &options->log.follow,
              "Continue until the job has ended");
  command.Add("-o,--output-format FORMAT", &options->output,
              "text, or json: one object per line, with the names of --filter",
              OneOf({"text", "json"}), ShowDefault);
  command.Add("--timestamps", &options->format.timestamps,
              "Print each line's time");
  command.Add("--prefix", &options->format.prefix,
              "Print each line's rank and task");
  AddColorOption(&command, cli);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunLogs(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
