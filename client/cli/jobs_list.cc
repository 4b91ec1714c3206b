#include <fnmatch.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/job_resource.h"
#include "client/cli/listing.h"
#include "client/cli/parse.h"
#include "client/cli/resource_format.h"

namespace lockstep::cli {
namespace {

struct ListJobsFlags {
  std::vector<std::string> states;
  std::vector<std::string> filters;
  int64_t limit = 0;
  int32_t page_size = 0;
  std::string sort_by;
  std::string format;
};

using Filter = std::pair<std::string, std::string>;

// Filters of lockstep itself (FIELD=PATTERN with * and ?) run here. The
// coordinator runs all others and reports their errors.
struct Filters {
  std::vector<Filter> patterns;
  std::string query;
};

Filters ParseFilters(const std::vector<std::string>& texts) {
  Filters filters;
  std::vector<std::string> queries;
  for (const std::string& text : texts) {
    const auto pair = ParsePair(text);
    const bool own =
        pair.ok() && text.find_first_of(" ()\"") == std::string::npos &&
        (pair->first == "name" || pair->first == "owner" ||
         pair->first == "kind" || pair->first.rfind("label.", 0) == 0);
    if (own) {
      filters.patterns.push_back(*pair);
    } else {
      queries.push_back(text);
    }
  }
  // A single query stays unchanged, because errors name a column.
  for (const std::string& query : queries) {
    if (queries.size() == 1) {
      filters.query = query;
    } else {
      filters.query += (filters.query.empty() ? "(" : " AND (") + query + ")";
    }
  }
  return filters;
}

// Returns the value of a filter's field.
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

// Keeps the first `limit` (0 for all) in the order of --sort-by.
void SortAndCut(const std::vector<SortKey>& keys, int64_t limit,
                std::vector<v1::Job>* jobs) {
  if (!keys.empty()) {
    std::vector<nlohmann::ordered_json> resources;
    for (const v1::Job& job : *jobs) resources.push_back(JobResource(job));
    std::vector<v1::Job> sorted;
    for (const size_t index : SortOrder(resources, keys)) {
      sorted.push_back(std::move((*jobs)[index]));
    }
    *jobs = std::move(sorted);
  }
  if (limit > 0 && static_cast<int64_t>(jobs->size()) > limit) {
    jobs->resize(static_cast<size_t>(limit));
  }
}

// gcloud's default table.
std::string DefaultTable(const std::vector<v1::Job>& jobs, bool headers) {
  Table table{{"JOB_ID", "STATUS", "CREATED"}, {}};
  for (const v1::Job& job : jobs) {
    std::string created = "-";
    if (job.has_create_time()) {
      created = FormatWallTime(ToWallTime(job.create_time())).substr(0, 19);
    }
    table.rows.push_back({Printable(job.name()), ResourceState(job), created});
  }
  return RenderTable(table, headers);
}

Status WriteResources(const Cli& cli, const ResourceFormat& format,
                      const std::vector<v1::Job>& jobs) {
  if (format.kind == ResourceFormat::Kind::kDefault) {
    *cli.env->out << DefaultTable(jobs, !cli.no_headers);
    return OkStatus();
  }
  std::vector<nlohmann::ordered_json> resources;
  for (const v1::Job& job : jobs) resources.push_back(JobResource(job));
  *cli.env->out << RenderResources(resources, true, format);
  return OkStatus();
}

Status WriteList(const Cli& cli, const std::vector<v1::Job>& jobs) {
  Listing listing;
  listing.collection = "jobs";
  const nlohmann::ordered_json all = JobResources(jobs);
  for (const nlohmann::ordered_json& resource : all["jobs"]) {
    listing.json_lines.push_back(DumpLine(resource));
    listing.names.push_back(resource["jobId"]);
  }
  listing.json = Dump(all);
  listing.table = [&](bool wide, const Style& style) {
    return JobsTable(jobs, wide, cli.env->clock->Now().wall, style);
  };
  listing.cuts_last_column = true;
  return WriteListing(cli, listing);
}

StatusOr<int> RunListJobs(const Cli& cli, const ListJobsFlags& options) {
  if (cli.uri && !options.format.empty()) {
    return InvalidArgument("--uri cannot be combined with --format");
  }
  ResourceFormat format;
  if (!options.format.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(format, ParseResourceFormat(options.format));
  }
  std::vector<SortKey> sort;
  if (!options.sort_by.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(sort, ParseSortKeys(options.sort_by));
  }
  ListJobsOptions list;
  for (const std::string& state : options.states) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const int index,
        ParseState(state, StateNames<v1::JobState>(v1::JobState_MAX)));
    list.states.push_back(static_cast<v1::JobState>(index));
  }
  const Filters filters = ParseFilters(options.filters);
  list.filter = filters.query;
  list.page_size = options.page_size;
  // If jobs are filtered or sorted here, the limit applies afterwards.
  if (filters.patterns.empty() && sort.empty()) list.limit = options.limit;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, client->ListJobs(list));
  std::erase_if(jobs, [&](const v1::Job& job) {
    return !Matches(job, filters.patterns);
  });
  SortAndCut(sort, options.limit, &jobs);
  LOCKSTEP_RETURN_IF_ERROR(options.format.empty()
                               ? WriteList(cli, jobs)
                               : WriteResources(cli, format, jobs));
  return 0;
}

}  // namespace

Command JobsListCommand(Cli* cli) {
  const auto options = std::make_shared<ListJobsFlags>();
  Command command =
      LeafCommand("list", "List jobs, newest first",
                  "  lockstep jobs list\n"
                  "  lockstep jobs list --state running,queued -o name\n"
                  "  lockstep jobs list --filter 'name=fashion-*' --filter "
                  "label.team=vision -o csv\n"
                  "  lockstep jobs list --filter 'jobId:rnn* AND state:FAILED' "
                  "--sort-by ~endTime --format default");
  command.Add("--state STATES", &options->states,
              "Only jobs in these states, as running,queued", SplitAt(','));
  command.Add(
      "--filter FIELD=PATTERN", &options->filters,
      "Only jobs whose FIELD (name, owner, kind or label.KEY) matches PATTERN, "
      "which may have * and ?; or gcloud's form: jobId:rnn* AND "
      "(state:FAILED OR createTime>-P1D) AND NOT labels.team=*; may be "
      "given several times",
      MayRepeat);
  command.Add("--limit", &options->limit, "At most N jobs (default: all)",
              AtLeast(0));
  command.Add(
      "--sort-by FIELDS", &options->sort_by,
      "Sort by these fields of --format, as createTime or ~endTime: ~ for "
      "descending order");
  command.Add("--page-size", &options->page_size, "Jobs per request",
              AtLeast(1));
  AddFormatOption(&command, &options->format);
  AddListOptions(&command, cli);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunListJobs(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
