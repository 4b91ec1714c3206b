#include <CLI/CLI.hpp>
#include <cctype>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"

namespace lockstep {
namespace {

struct Options {
  std::vector<std::string> states;
  int64_t limit = 0;
};

StatusOr<v1::JobState> ParseState(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(c));
  for (int i = 1; i <= v1::JobState_MAX; ++i) {
    if (Text(static_cast<v1::JobState>(i)) == text) {
      return static_cast<v1::JobState>(i);
    }
  }
  return InvalidArgument(
      "--state: there is no {}; there are queued, placing, preparing, forming, "
      "running, finishing, succeeded, failed and cancelled",
      text);
}

StatusOr<int> Run(const Cli& cli, const Options& options) {
  ListJobsOptions list;
  list.limit = options.limit;
  for (const std::string& state : options.states) {
    LOCKSTEP_ASSIGN_OR_RETURN(list.states.emplace_back(), ParseState(state));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs,
                            client->ListJobs(list));
  std::ostream& out = *cli.env->out;
  v1::ListJobsResponse all;
  for (const v1::Job& job : jobs) {
    if (output == Output::kName) out << job.name() << "\n";
    *all.add_jobs() = job;
  }
  if (output == Output::kJson) out << ToJson(all);
  if (output == Output::kYaml) out << ToYaml(all);
  if (output == Output::kTable || output == Output::kWide) {
    out << FormatJobs(jobs, output == Output::kWide, cli.env->clock->Now().wall,
                      cli.OutStyle());
  }
  return 0;
}

}  // namespace

void AddJobsList(CLI::App* parent, Cli* cli) {
  auto options = std::make_shared<Options>();
  CLI::App* const app =
      AddCommand(parent, "list", "Jobs, newest first",
                 "  lockstep jobs list\n"
                 "  lockstep jobs list --state running,queued -o name");
  app->add_option("--state", options->states,
                  "Only in these states, as running,queued")
      ->delimiter(',');
  app->add_option("--limit", options->limit, "At most so many (default: all)")
      ->check(AtLeast(0));
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *options); }; });
}

}  // namespace lockstep
