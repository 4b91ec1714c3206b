#include <fmt/format.h>

#include <CLI/CLI.hpp>
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

struct Options {
  LogOptions log;
  LogFormat format;
  std::string output = "text";
  std::string ranks;
  std::string since;
  std::string until;
  std::string severity;
  std::string filter;
};

Status ReadOptions(WallTime now, Options* options) {
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

// Says of each log that is not here as a whole why; how many those are.
int TellLostLogs(const Cli& cli, Client* client, const LogOptions& log) {
  const auto job = client->GetJob(log.name);
  // The lines are what was asked for.
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

StatusOr<int> Run(const Cli& cli, Options options) {
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
  // A program that reads JSON wants lines once.
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
        // As it comes, for who watches; and a closed pipe ends it.
        if (log.follow) return output.Write(line, shown);
        *env->out << shown;
        return env->out->good();
      },
      nullptr);
  output.Finish();
  LOCKSTEP_RETURN_IF_ERROR(status);
  return TellLostLogs(cli, client.get(), log) > 0 ? kExitError : 0;
}

// Which lines.
void AddSelection(CLI::App* app, Options* options) {
  LogOptions* const log = &options->log;
  app->add_option("--rank", options->ranks,
                  "Only these ranks, as 0-3,5 (default: all)")
      ->type_name("RANKS");
  app->add_option("--task", log->tasks,
                  "Only these tasks, as worker-replica-1,service (default: "
                  "all but the service)")
      ->delimiter(',')
      ->type_name("TASKS");
  app->add_flag("--events", log->include_events,
                "Also what happened to the job, as lines of the task service");
  app->add_option("--attempt", log->attempt,
                  "Only of this attempt, from 1 (default: all)")
      ->check(AtLeast(1));
  app->add_option("--tail", log->tail,
                  "The last N lines of each rank, at least 1 (default: all)")
      ->check(AtLeast(1));
  app->add_option("--since", options->since,
                  "Lines after this, as 10m (ago) or 2026-01-31T12:00:00Z")
      ->type_name("TIME");
  app->add_option("--until", options->until, "Lines up to this, as --since")
      ->type_name("TIME");
  app->add_option("--grep", log->grep,
                  "Only lines in which this regular expression (RE2) matches; "
                  "(?i) before it for any case")
      ->type_name("PATTERN");
  app->add_option("--severity", options->severity,
                  "Only these and worse, guessed from the text")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "critical"},
                            CLI::ignore_case))
      ->type_name("SEVERITY");
  app->add_option("--filter", options->filter,
                  "As AI Platform's users write them: fields "
                  "resource.labels.task_name (or "
                  "labels.\"ml.googleapis.com/task_name\"), severity, "
                  "textPayload (or jsonPayload.message), timestamp, "
                  "labels.rank, labels.attempt, labels.stream, resource.type; "
                  "= != : =~ !~ < <= > >=; AND, OR, NOT and brackets")
      ->type_name("QUERY");
}

}  // namespace

void AddJobsLogs(CLI::App* parent, Cli* cli) {
  auto options = std::make_shared<Options>();
  CLI::App* const app = AddCommand(
      parent, "logs", "What a job's ranks wrote to stdout and stderr",
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
  app->add_option("name", options->log.name, "The job, or how its name begins")
      ->type_name("JOB")
      ->required();
  AddSelection(app, options.get());
  app->add_flag("-f,--follow", options->log.follow,
                "Go on until the job has ended");
  app->add_option("-o,--output-format", options->output,
                  "text, or json: one object a line, with the names of "
                  "--filter")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  app->add_flag("--timestamps", options->format.timestamps,
                "Each line's time first");
  app->add_flag("--prefix", options->format.prefix,
                "Each line's rank and task first");
  app->add_option("--color", cli->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->capture_default_str();
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *options); }; });
}

}  // namespace lockstep
