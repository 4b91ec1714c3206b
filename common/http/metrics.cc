#include "common/http/metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/text_serializer.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "common/base/version.h"
#include "common/os/procfs.h"

namespace lockstep::http {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Single(std::string name, std::string help, MetricType type,
                    double value) {
  ClientMetric metric;
  metric.counter.value = value;
  metric.gauge.value = value;
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  family.metric.push_back(std::move(metric));
  return family;
}

HttpResponse Metrics(
    const std::vector<std::shared_ptr<prometheus::Collectable>>& collectables) {
  std::vector<MetricFamily> families;
  for (const auto& collectable : collectables) {
    std::vector<MetricFamily> more = collectable->Collect();
    std::move(more.begin(), more.end(), std::back_inserter(families));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return {200, "text/plain; version=0.0.4; charset=utf-8", text.str()};
}

HttpResponse Ready(const std::function<Status()>& ready) {
  const Status status = ready ? ready() : OkStatus();
  if (status.ok()) return {.body = "ready\n"};
  return {.status = 503, .body = Message(status) + "\n"};
}

}  // namespace

std::vector<MetricFamily> ProcessCollector::Collect() const {
  std::vector<MetricFamily> families;
  const StatusOr<SelfMetrics> self = ReadSelfMetrics();
  if (self.ok()) {
    const auto add = [&](const char* name, const char* help, MetricType type,
                         auto value) {
      families.push_back(Single(name, help, type, static_cast<double>(value)));
    };
    add("process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.", MetricType::Counter,
        self->cpu_seconds);
    add("process_resident_memory_bytes", "Resident memory size in bytes.",
        MetricType::Gauge, self->resident_bytes);
    add("process_virtual_memory_bytes", "Virtual memory size in bytes.",
        MetricType::Gauge, self->virtual_bytes);
    add("process_open_fds", "Number of open file descriptors.",
        MetricType::Gauge, self->open_fds);
    add("process_max_fds", "Maximum number of open file descriptors.",
        MetricType::Gauge, self->max_fds);
    add("process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        MetricType::Gauge, self->start_time_unix_seconds);
  }
  MetricFamily build =
      Single("lockstep_build_info",
             "Always 1; the labels describe the running program.",
             MetricType::Gauge, 1);
  build.metric[0].label = {{"program", program_},
                           {"version", std::string(kVersion)}};
  families.push_back(std::move(build));
  return families;
}

std::vector<MetricFamily> HttpCollector::Collect() const {
  return {Single("lockstep_http_requests_refused_total",
                 "HTTP requests without a valid token or password.",
                 MetricType::Counter, static_cast<double>(server_->refused()))};
}

void AddStandardPages(const StandardPages& pages, HttpServer* server) {
  auto collectables = pages.collectables;
  collectables.push_back(std::make_shared<ProcessCollector>(pages.program));
  collectables.push_back(std::make_shared<HttpCollector>(server));
  server->Handle("/metrics", [collectables](const HttpRequest&) {
    return Metrics(collectables);
  });
  server->HandleAtOnce("/-/healthy", [](const HttpRequest&) {
    return HttpResponse{.body = "healthy\n"};
  });
  server->HandleOpen("/-/ready", [ready = pages.ready](const HttpRequest&) {
    return Ready(ready);
  });
  const nlohmann::json version = {{"program", pages.program},
                                  {"version", std::string(kVersion)}};
  server->Handle("/version", [text = version.dump()](const HttpRequest&) {
    return HttpResponse{.content_type = "application/json",
                        .body = text + "\n"};
  });
}

void AddMetricsPage(
    const std::string& path,
    std::vector<std::shared_ptr<prometheus::Collectable>> collectables,
    HttpServer* server, std::string if_empty) {
  server->Handle(path, [all = std::move(collectables),
                        none = std::move(if_empty)](const HttpRequest&) {
    HttpResponse page = Metrics(all);
    if (page.body.empty() && !none.empty()) page.body = "# " + none + "\n";
    return page;
  });
}

}  // namespace lockstep::http
