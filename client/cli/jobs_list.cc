#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <memory>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/listing.h"
#include "client/cli/parse.h"

namespace lockstep {
namespace {

struct Options {
  std::vector<std::string> states;
  std::vector<std::string> filters;
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

using Filter = std::pair<std::string, std::string>;

StatusOr<std::vector<Filter>> ParseFilters(
    const std::vector<std::string>& texts) {
  std::vector<Filter> filters;
  for (const std::string& text : texts) {
    const auto pair = ParsePair(text);
    if (!pair.ok()) return Annotate(pair.status(), "--filter");
    const std::string& field = pair->first;
    if (field != "name" && field != "owner" && field != "kind" &&
        field.rfind("label.", 0) != 0) {
      return InvalidArgument(
          "--filter: there is no field {}; there are name, owner, kind and "
          "label.KEY",
          field);
    }
    filters.push_back(*pair);
  }
  return filters;
}

// The value of a filter's field.
std::string FieldOf(const v1::Job& job, const std::string& field) {
  if (field == "name") return job.name();
  if (field == "owner") return job.owner();
  if (field == "kind") return Text(job.spec().kind());
  const auto label = job.spec().labels().find(field.substr(6));
  return label == job.spec().labels().end() ? "" : label->second;
}

bool Matches(const v1::Job& job, const std::vector<Filter>& filters) {
  for (const auto& [field, pattern] : filters) {
    if (fnmatch(pattern.c_str(), FieldOf(job, field).c_str(), 0) != 0) {
      return false;
    }
  }
  return true;
}

StatusOr<int> Run(const Cli& cli, const Options& options) {
  ListJobsOptions list;
  for (const std::string& state : options.states) {
    LOCKSTEP_ASSIGN_OR_RETURN(list.states.emplace_back(), ParseState(state));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Filter> filters,
                            ParseFilters(options.filters));
  // What is filtered here counts only afterwards.
  if (filters.empty()) list.limit = options.limit;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, client->ListJobs(list));
  std::erase_if(jobs,
                [&](const v1::Job& job) { return !Matches(job, filters); });
  if (options.limit > 0 && static_cast<int64_t>(jobs.size()) > options.limit) {
    jobs.resize(static_cast<size_t>(options.limit));
  }
  v1::ListJobsResponse all;
  Listing listing;
  listing.all = &all;
  for (const v1::Job& job : jobs) {
    *all.add_jobs() = job;
    listing.items.push_back(&job);
    listing.names.push_back(job.name());
  }
  listing.table = [&](bool wide, const Style& style) {
    return JobsTable(jobs, wide, cli.env->clock->Now().wall, style);
  };
  LOCKSTEP_RETURN_IF_ERROR(WriteListing(cli, listing));
  return 0;
}

}  // namespace

void AddJobsList(CLI::App* parent, Cli* cli) {
  auto options = std::make_shared<Options>();
  CLI::App* const app =
      AddCommand(parent, "list", "Jobs, newest first",
                 "  lockstep jobs list\n"
                 "  lockstep jobs list --state running,queued -o name\n"
                 "  lockstep jobs list --filter 'name=fashion-*' --filter "
                 "label.team=vision -o csv");
  app->add_option("--state", options->states,
                  "Only in these states, as running,queued")
      ->delimiter(',')
      ->type_name("STATES");
  app->add_option("--filter", options->filters,
                  "Only where FIELD (name, owner, kind or label.KEY) matches "
                  "PATTERN, which may have * and ?; may be given several times")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("FIELD=PATTERN");
  app->add_option("--limit", options->limit, "At most so many (default: all)")
      ->check(AtLeast(0));
  AddListOptions(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli, *options); }; });
}

}  // namespace lockstep
