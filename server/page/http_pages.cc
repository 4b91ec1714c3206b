#include "server/page/http_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/host_port.h"
#include "server/core/job.h"
#include "server/logs/log_tail.h"
#include "server/metrics/discovery.h"
#include "server/page/compare_page.h"
#include "server/page/grafana_link.h"
#include "server/page/logs_page.h"
#include "server/page/overview_page.h"
#include "server/page/page_query.h"
#include "server/page/status_page.h"
#include "server/page/why_page.h"
#include "server/service/evidence_message.h"

namespace lockstep::server {
namespace {

using http::HttpRequest;
using http::HttpResponse;
using http::HttpServer;

// How long an ended job stays on the front page.
constexpr Duration kShown = std::chrono::hours(24);
// Of a failed job's log, on its page.
constexpr size_t kLastLines = 20;
constexpr size_t kLastBytes = 64 << 10;

// Returns this server's address for the client: the listening address, or the
// name in the request.
std::string OwnTarget(const HttpServer& server, const HttpRequest& request) {
  const auto own = ParseHostPort(server.address());
  if (!own.ok()) return "";
  if (own->host != "0.0.0.0" && own->host != "::") return server.address();
  const auto asked = ParseHostPort(request.host);
  if (!asked.ok()) return "";
  return FormatHostPort({asked->host, own->port});
}

HttpResponse Targets(const std::string& cluster, const ClusterQueries* queries,
                     const HttpServer& server, const HttpRequest& request) {
  const CoordinatorView view = queries->View(Duration{});
  return {.content_type = "application/json",
          .body = TargetsJson(
              view.nodes, {cluster, OwnTarget(server, request), server.tls()},
              view.time)};
}

std::string NameIn(const HttpRequest& request, std::string_view prefix) {
  return request.path.substr(prefix.size());
}

HttpResponse Node(const std::string& cluster, const JobReader& reader,
                  const ClusterQueries* queries, const std::string& name) {
  const auto node = queries->GetNode(name);
  if (!node.ok()) return ErrorPage(cluster, node.status());
  std::vector<JobSnapshot> jobs;
  CoordinatorView view = queries->View(Duration{});
  for (auto& entry : view.jobs) {
    const auto& on_node = node->jobs;
    if (std::find(on_node.begin(), on_node.end(),
                  entry.snapshot.job->spec.name) != on_node.end()) {
      jobs.push_back(std::move(entry.snapshot));
    }
  }
  return NodePage(cluster, reader, *node, jobs, view.time.wall);
}

// When the job's curves begin and end.
HistoryKeeper::Query QueryFor(const JobSnapshot& snapshot) {
  const Job& job = *snapshot.job;
  HistoryKeeper::Query query;
  query.job = job.spec.name;
  query.uid = job.uid;
  query.from = job.start_time.value_or(job.create_time);
  query.to =
      IsFinal(job.state) ? job.end_time.value_or(snapshot.time) : snapshot.time;
  return query;
}

// Returns the lines of a log, which one that cannot be read has not.
std::optional<LogTail> TailOf(LogStore* logs, const LogKey& key) {
  auto tail = ReadTail(logs, {key}, [](const TailLine&) { return true; },
                       {.lines = kLastLines, .bytes = kLastBytes});
  if (!tail.ok()) return std::nullopt;
  return *std::move(tail);
}

// What keeps new work from GPUs that the job's tasks use.
std::vector<std::string> BadGpusOf(const ClusterQueries& queries,
                                   const Job& job) {
  std::vector<std::string> bad;
  if (IsFinal(job.state)) return bad;
  for (const TaskStatus& task : job.tasks) {
    if (task.gpus.empty()) continue;
    const auto node = queries.GetNode(task.node);
    if (!node.ok()) continue;
    for (const Gpu& gpu : node->member.info.gpus) {
      const std::string trouble = node->member.GpuTrouble(gpu);
      if (trouble.empty() || std::find(task.gpus.begin(), task.gpus.end(),
                                       gpu.index) == task.gpus.end()) {
        continue;
      }
      bad.push_back(fmt::format("{} uses GPU {} of node {}: {}",
                                TaskName(task.type, task.index), gpu.index,
                                task.node, trouble));
    }
  }
  return bad;
}

HttpResponse JobOf(const PageParts& parts, const JobSnapshot& snapshot,
                   const HttpRequest& request) {
  const Job& job = *snapshot.job;
  const auto span = ParseSpan(request.parameters);
  if (!span.ok()) return ErrorPage(parts.cluster, span.status());
  const JobReader reader = parts.reader();
  JobExtras extras;
  extras.late_rank = parts.ledger->LateRank(job.spec.name);
  extras.span = span->name;
  if (!parts.grafana_url.empty()) {
    extras.grafana =
        GrafanaLink(parts.grafana_url, parts.cluster, job.spec.name,
                    job.start_time.value_or(job.create_time),
                    IsFinal(job.state) ? job.end_time : std::nullopt);
  }
  if (reader.Sees(job.owner)) {
    HistoryKeeper::Query query = QueryFor(snapshot);
    query.span = span->length;
    extras.history = parts.history->Read(query);
    extras.bad_gpus = BadGpusOf(*parts.queries, job);
    const auto log =
        job.state == JobState::kFailed ? FailedLogOf(job) : std::nullopt;
    if (log) extras.last_lines = TailOf(parts.logs, *log);
  }
  return JobPage(parts.cluster, reader, snapshot, extras);
}

StatusOr<HttpResponse> LogsOf(const PageParts& parts, const Job& job,
                              const HttpRequest& request) {
  LOCKSTEP_ASSIGN_OR_RETURN(const LogsQuery query,
                            ParseLogsQuery(request.parameters));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSees(parts.reader(), job.spec.name, job.owner, "logs"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<LogKey> keys,
                            SelectLogs(job, query));
  LOCKSTEP_ASSIGN_OR_RETURN(LogFilter filter, LogFilter::Make(query.selection));
  const LineSelector selector(job, query, std::move(filter));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const LogTail tail,
      ReadTail(parts.logs, keys,
               [&](const TailLine& line) { return selector.Wants(line); },
               {.lines = query.tail}));
  return LogsPage(parts.cluster, job, query, tail);
}

JobCheck StacksCheck(const PageParts& parts) {
  return [reader = parts.reader()](const Job& found) {
    return CheckSees(reader, found.spec.name, found.owner, "stacks");
  };
}

StatusOr<HttpResponse> WhyOfJob(const PageParts& parts,
                                const JobSnapshot& snapshot,
                                const HttpRequest& request) {
  const Job& job = *snapshot.job;
  LOCKSTEP_ASSIGN_OR_RETURN(const WhyQuery query, ParseWhy(request.parameters));
  const auto may = StacksCheck(parts);
  LOCKSTEP_RETURN_IF_ERROR(may(job));
  std::vector<WhyPart> shown;
  const auto add = [&](const std::string& title, const std::string& parameter,
                       const StatusOr<FoundRanks>& found) {
    shown.push_back(
        {title, parameter,
         found.ok() ? parts.evidence->Collect(*found) : found.status()});
  };
  if (query.now) {
    add("Now", "now=1", parts.queries->FindRunning(job.spec.name, {}, may));
  }
  const auto kept =
      parts.queries->FindKept(job.spec.name, {}, query.attempt, may);
  if (kept.ok() || query.attempt > 0) {
    const int32_t attempt = kept.ok() ? kept->attempt : query.attempt;
    add(fmt::format("Before attempt {} was stopped", attempt),
        fmt::format("attempt={}", attempt), kept);
  }
  // The others of which something is kept.
  std::vector<int32_t> others;
  for (const Attempt& attempt : job.attempts) {
    const int32_t ordinal = attempt.ordinal;
    if (kept.ok() && kept->attempt != ordinal &&
        parts.queries->FindKept(job.spec.name, {}, ordinal, may).ok()) {
      others.push_back(ordinal);
    }
  }
  return WhyPage(parts.cluster, snapshot, shown, others);
}

// What WhyOfJob shows, as a file.
StatusOr<HttpResponse> EvidenceOfJob(const PageParts& parts, const Job& job,
                                     const HttpRequest& request) {
  LOCKSTEP_ASSIGN_OR_RETURN(const WhyQuery query, ParseWhy(request.parameters));
  const auto may = StacksCheck(parts);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const FoundRanks found,
      query.now
          ? parts.queries->FindRunning(job.spec.name, {}, may)
          : parts.queries->FindKept(job.spec.name, {}, query.attempt, may));
  LOCKSTEP_ASSIGN_OR_RETURN(const EvidenceCalls::Evidence evidence,
                            parts.evidence->Collect(found));
  return HttpResponse{
      .content_type = "application/json",
      .body = EvidenceJson(found, evidence.judged, evidence.notes,
                           parts.queries->clock().Now().wall)};
}

StatusOr<HttpResponse> Compare(const PageParts& parts,
                               const HttpRequest& request) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            ParseCompared(request.parameters));
  std::vector<HistoryKeeper::Query> queries;
  Duration longest = std::chrono::seconds(1);
  for (const std::string& name : names) {
    LOCKSTEP_ASSIGN_OR_RETURN(const JobSnapshot snapshot,
                              parts.queries->GetJob(name));
    LOCKSTEP_RETURN_IF_ERROR(
        CheckSees(parts.reader(), name, snapshot.job->owner, "history"));
    queries.push_back(QueryFor(snapshot));
    longest = std::max(longest, queries.back().to - queries.back().from);
  }
  std::map<std::string, HistoryPlot> plots;
  for (HistoryKeeper::Query& query : queries) {
    query.to = query.from + longest;
    HistoryPlot plot = parts.history->Read(query);
    if (!plot.empty()) plots.emplace(query.job, std::move(plot));
  }
  return ComparePage(parts.cluster, names, plots);
}

// Turns an error into a page.
HttpResponse PageOr(const PageParts& parts, StatusOr<HttpResponse> page) {
  return page.ok() ? *std::move(page) : ErrorPage(parts.cluster, page.status());
}

// /jobs/NAME, /jobs/NAME/logs, /jobs/NAME/why, /jobs/NAME/evidence.json.
HttpResponse AnyJobPage(const PageParts& parts, const HttpRequest& request) {
  std::string name = NameIn(request, "/jobs/");
  std::string part;
  for (const std::string_view suffix : {"/logs", "/why", "/evidence.json"}) {
    if (!name.ends_with(suffix)) continue;
    part = suffix;
    name.resize(name.size() - suffix.size());
    break;
  }
  const auto job = parts.queries->GetJob(name);
  if (!job.ok()) return ErrorPage(parts.cluster, job.status());
  if (part == "/logs") {
    return PageOr(parts, LogsOf(parts, *job->job, request));
  }
  if (part == "/why") return PageOr(parts, WhyOfJob(parts, *job, request));
  if (part == "/evidence.json") {
    return PageOr(parts, EvidenceOfJob(parts, *job->job, request));
  }
  return JobOf(parts, *job, request);
}

}  // namespace

void AddCoordinatorPages(const PageParts& parts, HttpServer* server) {
  server->Handle("/", [=](const HttpRequest& request) {
    const auto query = ParseOverview(request.parameters);
    if (!query.ok()) return ErrorPage(parts.cluster, query.status());
    CoordinatorView view = parts.queries->View(kShown);
    std::vector<JobSnapshot*> jobs;
    for (auto& job : view.jobs) jobs.push_back(&job.snapshot);
    parts.queries->AddExpectedStarts(jobs);
    return OverviewPage(parts.cluster, parts.reader(), view, *query);
  });
  server->Handle("/sd", [=](const HttpRequest& request) {
    return Targets(parts.cluster, parts.queries, *server, request);
  });
  server->HandlePrefix("/jobs/", [=](const HttpRequest& request) {
    return AnyJobPage(parts, request);
  });
  server->Handle("/compare", [=](const HttpRequest& request) {
    return PageOr(parts, Compare(parts, request));
  });
  server->HandlePrefix("/nodes/", [=](const HttpRequest& request) {
    return Node(parts.cluster, parts.reader(), parts.queries,
                NameIn(request, "/nodes/"));
  });
}

}  // namespace lockstep::server
