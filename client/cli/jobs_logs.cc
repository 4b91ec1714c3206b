#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/log_text.h"
#include "client/cli/parse.h"

namespace lockstep {
namespace {

struct Options {
  LogOptions log;
  LogFormat format;
  std::string ranks;
  std::string since;
};

StatusOr<int> Run(const Cli& cli, Options options) {
  CliEnvironment* const env = cli.env;
  if (!options.ranks.empty()) {
    const auto ranks = ParseRanks(options.ranks);
    if (!ranks.ok()) return Annotate(ranks.status(), "--rank");
    options.log.ranks = *ranks;
  }
  if (!options.since.empty()) {
    const auto since = ParseSince(options.since, env->clock->Now().wall);
    if (!since.ok()) return Annotate(since.status(), "--since");
    options.log.since = *since;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(options.log.name,
                            FindJob(client.get(), options.log.name));
  options.log.on_interrupted = [&](const Status& status) {
    *env->err << fmt::format(
        "lockstep: the coordinator is away ({}); trying again\n",
        Message(status));
  };
  const Style style = cli.OutStyle();
  const Status status = client->StreamLogs(
      options.log,
      [&](const v1::LogLine& line) {
        *env->out << FormatLogLine(line, options.format, style);
        // As it comes, for who watches; and a closed pipe ends it.
        if (options.log.follow) *env->out << std::flush;
        return env->out->good();
      },
      nullptr);
  LOCKSTEP_RETURN_IF_ERROR(status);
  return 0;
}

}  // namespace

void AddJobsLogs(CLI::App* parent, Cli* cli) {
  auto options = std::make_shared<Options>();
  CLI::App* const app = AddCommand(
      parent, "logs", "What a job's ranks wrote to stdout and stderr",
      "  lockstep jobs logs fashion --rank 0 --tail 20\n"
      "  lockstep jobs logs -f fashion --prefix --since 10m\n"
      "\nLines of all ranks come by time, each rank's in its own order; with -f"
      "\na rank's line waits up to 0.3 s for those of others that are"
      "\nolder. -f of a job that waits for its place waits with it.");
  app->add_option("name", options->log.name, "The job, or how its name begins")
      ->type_name("JOB")
      ->required();
  app->add_option("--rank", options->ranks,
                  "Only these ranks, as 0-3,5 (default: all)")
      ->type_name("RANKS");
  app->add_flag("-f,--follow", options->log.follow,
                "Go on until the job has ended");
  app->add_option("--tail", options->log.tail,
                  "The last N lines of each rank, at least 1 (default: all)")
      ->check(AtLeast(1));
  app->add_option("--since", options->since,
                  "Lines after this, as 10m (ago) or 2026-01-31T12:00:00Z")
      ->type_name("TIME");
  app->add_option("--attempt", options->log.attempt,
                  "Only of this attempt, from 1 (default: all)")
      ->check(AtLeast(1));
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
