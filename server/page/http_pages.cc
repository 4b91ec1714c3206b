#include "server/page/http_pages.h"

#include <algorithm>

#include "common/base/host_port.h"
#include "server/metrics/discovery.h"
#include "server/page/status_page.h"

namespace lockstep::server {
namespace {

using http::HttpRequest;
using http::HttpResponse;
using http::HttpServer;

// How long an ended job stays on the front page.
constexpr Duration kShown = std::chrono::hours(24);

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

}  // namespace

void AddCoordinatorPages(const std::string& cluster,
                         const ClusterQueries* queries,
                         const MetricLedger* ledger,
                         const std::function<JobReader()>& reader,
                         HttpServer* server) {
  server->Handle("/", [=](const HttpRequest&) {
    return OverviewPage(cluster, reader(), queries->View(kShown));
  });
  server->Handle("/sd", [=](const HttpRequest& request) {
    return Targets(cluster, queries, *server, request);
  });
  server->HandlePrefix("/jobs/", [=](const HttpRequest& request) {
    const auto job = queries->GetJob(NameIn(request, "/jobs/"));
    if (!job.ok()) return ErrorPage(cluster, job.status());
    return JobPage(cluster, reader(), *job,
                   ledger->LateRank(job->job->spec.name));
  });
  server->HandlePrefix("/nodes/", [=](const HttpRequest& request) {
    return Node(cluster, reader(), queries, NameIn(request, "/nodes/"));
  });
}

}  // namespace lockstep::server
