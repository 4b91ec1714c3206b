#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/live_output.h"
#include "client/cli/log_query.h"
#include "client/cli/log_text.h"
#include "client/cli/lost_logs.h"
#include "client/cli/parse.h"

namespace lockstep {
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
    const auto severity = ParseSeverity(options->severity);
    if (!severity.ok()) return Annotate(severity.status(), "--severity");
    log.min_severity = *severity;
  }
  return OkStatus();
}

// Prints why each incomplete log is incomplete. Returns their number.
int TellLostLogs(const Cli& cli, Client* client, const LogOptions& log) {
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
  if (!query.Narrow(log.name, &log) && log.tail > 0) {
    return InvalidArgument(
        "--tail counts lines before this --filter is done with them; leave one "
        "out, or filter by task_name, severity>=, timestamp and one "
        "textPayload");
  }
  LiveOutput output(env);
  log.on_interrupted = [&](const Status& status) {
    output.Say(
        fmt::format("lockstep: the coordinator is away ({}); trying again\n",
                    Message(status)));
  };
  if (log.follow && env->end_with_reader) env->end_with_reader();
  // A program that reads JSON wants each line once.
  log.partial_lines = log.follow && options.output != "json";
  const Style style = cli.OutStyle();
  const Status status = client->StreamLogs(
      log,
      [&](const v1::LogLine& line) {
        if (!query.Matches(log.name, line)) return true;
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
  return TellLostLogs(cli, client.get(), log) > 0 ? kExitError : 0;
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
               "Also what happened to the job, as lines of the task service");
  command->Add("--attempt", &log->attempt,
               "Only of this attempt, from 1 (default: all)", AtLeast(1));
  command->Add("--tail", &log->tail,
               "The last N lines of each rank, at least 1 (default: all)",
               AtLeast(1));
  command->Add("--since TIME", &options->since,
               "Lines after this, as 10m (ago) or 2026-01-31T12:00:00Z");
  command->Add("--until TIME", &options->until, "Lines up to this, as --since");
  command->Add("--grep PATTERN", &log->grep,
               "Only lines in which this regular expression (RE2) matches; "
               "(?i) before it for any case");
  command->Add("--severity SEVERITY", &options->severity,
               "Only these and worse, guessed from the text",
               OneOf({"debug", "info", "warning", "error", "critical"}),
               AnyCase);
  command->Add(
      "--filter QUERY", &options->filter,
      "As AI Platform's users write them: fields resource.labels.task_name (or "
      "labels.\"ml.googleapis.com/task_name\"), severity, textPayload (or "
      "jsonPayload.message), timestamp, labels.rank, labels.attempt, "
      "labels.stream, resource.type; = != : =~ !~ < <= > >=; AND, OR, NOT and "
      "brackets");
}

}  // namespace

Command JobsLogsCommand(Cli* cli) {
  const auto options = std::make_shared<LogsFlags>();
  Command command = LeafCommand(
      "logs", "What a job's ranks wrote to stdout and stderr",
      "  lockstep jobs logs fashion --rank 0 --tail 20\n"
      "  lockstep jobs logs -f fashion --prefix --since 10m\n"
      "  lockstep jobs logs fashion --task worker-replica-1 --severity error\n"
      "  lockstep jobs logs fashion --grep 'loss=nan' -o json | jq "
      ".textPayload\n"
      "  lockstep jobs logs fashion --filter "
      "'resource.labels.task_name=\"worker-replica-1\" severity>=ERROR'\n"
      "\nLines of all ranks come by time, each rank's in its own order; with -f"
      "\na rank's line waits up to 0.3 s for those of others that are"
      "\nolder. -f of a job that waits for its place waits with it, and shows "
      "lines"
      "\nthat have no end yet, such as progress bars: on a terminal they are "
      "redrawn,"
      "\nelsewhere each is a line at most once a second. Returns 0; 1 where a "
      "log is"
      "\nnot here as a whole because its node is silent.");
  AddJobArgument(&command, &options->log.name);
  AddSelection(&command, options.get());
  command.Add("-f,--follow", &options->log.follow,
              "Go on until the job has ended");
  command.Add("-o,--output-format FORMAT", &options->output,
              "text, or json: one object a line, with the names of --filter",
              OneOf({"text", "json"}), ShowDefault);
  command.Add("--timestamps", &options->format.timestamps,
              "Each line's time first");
  command.Add("--prefix", &options->format.prefix,
              "Each line's rank and task first");
  AddColorOption(&command, cli);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunLogs(*cli, *options); };
  return command;
}

}  // namespace lockstep
