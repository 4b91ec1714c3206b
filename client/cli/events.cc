// `lockstep events`: the stored events of jobs and nodes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <utility>

#include "client/cli/cli.h"
#include "client/cli/parse.h"

namespace lockstep::cli {
namespace {

constexpr Duration kEventsPoll = std::chrono::seconds(1);
// The number of jobs whose events are read, newest first.
constexpr int64_t kMostJobs = 200;

struct EventsFlags {
  std::string since;
  bool follow = false;
};

struct EventRow {
  std::string about;  // "job fashion", "node host-a"
  v1::Event event;

  auto Time() const {
    return std::pair(event.time().seconds(), event.time().nanos());
  }
};

// Collects events without duplicates.
class Collector {
 public:
  explicit Collector(Client* client) : client_(client) {}

  // Returns the new events since the last call, by time.
  StatusOr<std::vector<EventRow>> Collect() {
    std::vector<EventRow> rows;
    ListJobsOptions list;
    list.limit = kMostJobs;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs,
                              client_->ListJobs(list));
    for (const v1::Job& listed : jobs) {
      int64_t& version = versions_[listed.uid() + listed.name()];
      if (version == listed.resource_version() && version != 0) continue;
      version = listed.resource_version();
      const auto job = client_->GetJob(listed.name());
      // It was deleted between the two calls.
      if (job.status().code() == StatusCode::kNotFound) continue;
      if (!job.ok()) return job.status();
      for (const v1::Event& event : job->events()) {
        Add("job " + job->name(), event, &rows);
      }
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Node> nodes,
                              client_->ListNodes());
    for (const v1::Node& node : nodes) {
      for (const v1::Event& event : node.events()) {
        Add("node " + node.name(), event, &rows);
      }
    }
    // Keeps the order of one object's events at the same time.
    std::stable_sort(rows.begin(), rows.end(),
                     [](const EventRow& a, const EventRow& b) {
                       return a.Time() < b.Time();
                     });
    return rows;
  }

 private:
  void Add(const std::string& about, const v1::Event& event,
           std::vector<EventRow>* rows) {
    EventRow row{about, event};
    const auto time = std::pair(event.time().seconds(), event.time().nanos());
    // The events of one object come in order.
    auto& [newest, texts] = seen_[about];
    if (time < newest) return;
    if (time > newest) {
      newest = time;
      texts.clear();
    }
    if (std::find(texts.begin(), texts.end(), event.message()) != texts.end()) {
      return;
    }
    texts.push_back(event.message());
    rows->push_back(std::move(row));
  }

  Client* const client_;
  std::map<std::string, int64_t> versions_;
  std::map<std::string,
           std::pair<std::pair<int64_t, int32_t>, std::vector<std::string>>>
      seen_;
};

std::string ReasonText(const v1::Event& event) {
  return event.reason() == v1::REASON_UNSPECIFIED ? "-" : Text(event.reason());
}

void WriteEvents(const Cli& cli, Output output,
                 const std::vector<EventRow>& rows, bool first) {
  std::ostream& out = *cli.env->out;
  if (output == Output::kJson || output == Output::kJsonl) {
    for (const EventRow& row : rows) {
      const size_t space = row.about.find(' ');
      std::string line = ToJsonLine(row.event);
      // Inserts the object's name at the front of {"time":...}.
      out << fmt::format("{{\"{}\":\"{}\",{}", row.about.substr(0, space),
                         row.about.substr(space + 1), line.substr(1));
    }
    out << std::flush;
    return;
  }
  Table table{{"TIME", "ABOUT", "REASON", "WHAT"}, {}};
  for (const EventRow& row : rows) {
    table.rows.push_back(
        {TimeText(true, row.event.time()), PadRight(Printable(row.about), 20),
         PadRight(ReasonText(row.event), 18), Printable(row.event.message())});
  }
  out << RenderTable(table, first && !cli.no_headers) << std::flush;
}

StatusOr<int> RunEvents(const Cli& cli, const EventsFlags& options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  WallTime since;
  if (!options.since.empty()) {
    const auto parsed = ParseSince(options.since, env->clock->Now().wall);
    if (!parsed.ok()) return Annotate(parsed.status(), "--since");
    since = *parsed;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  if (options.follow && env->end_with_reader) env->end_with_reader();
  Collector collector(client.get());
  StopToken pause;
  for (bool first = true;; first = false) {
    auto rows = collector.Collect();
    if (!rows.ok()) {
      // With --follow a restart of the coordinator is not an error.
      if (first || rows.status().code() != StatusCode::kUnavailable) {
        return rows.status();
      }
      rows = std::vector<EventRow>();
    }
    std::erase_if(*rows, [&](const EventRow& row) {
      return ToWallTime(row.event.time()) < since;
    });
    if (first || !rows->empty()) WriteEvents(cli, output, *rows, first);
    if (!options.follow || !env->out->good()) return 0;
    if (env->interrupted && env->interrupted()) return kExitInterrupted;
    pause.WaitFor(kEventsPoll);
  }
}

}  // namespace

Command EventsCommand(Cli* cli) {
  const auto options = std::make_shared<EventsFlags>();
  Command command = LeafCommand(
      "events", "List the events of jobs and nodes by time",
      "  lockstep events --since 1h\n"
      "  lockstep events -f -o jsonl | jq .message\n\n"
      "The coordinator keeps a bounded number for each node, and for each\n"
      "of the 200 newest jobs.");
  command.Add("-f,--follow", &options->follow, "Keep printing new events");
  command.Add(
      "--since TIME", &options->since,
      "Only events after this time, as 10m (ago) or 2026-01-31T12:00:00Z");
  command.Add("-o,--output-format FORMAT", &cli->output,
              "table, or json or jsonl: one object per line",
              OneOf({"table", "json", "jsonl"}), ShowDefault);
  command.Add("--no-headers", &cli->no_headers, "Omit the column names");
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunEvents(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
