// The pages that every daemon has:
//   /metrics     Prometheus text format 0.0.4
//   /-/healthy   200 while the process answers; needs no credentials
//   /-/ready     200, or 503 with the reason; needs no credentials
//   /version     {"program": "lockstep-coordinator", "version": "0.1.0"}
#ifndef LOCKSTEP_COMMON_HTTP_METRICS_H_
#define LOCKSTEP_COMMON_HTTP_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/server.h"

namespace lockstep::http {

// process_* of this process, named as in Prometheus's client libraries, and
// lockstep_build_info. Values that /proc lacks are left out.
class ProcessCollector final : public prometheus::Collectable {
 public:
  explicit ProcessCollector(std::string program)
      : program_(std::move(program)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string program_;
};

// The counters of the HTTP server.
class HttpCollector final : public prometheus::Collectable {
 public:
  // `server` must outlive it.
  explicit HttpCollector(const HttpServer* server) : server_(server) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const HttpServer* const server_;
};

struct StandardPages {
  // "lockstep-coordinator".
  std::string program;
  // ProcessCollector and HttpCollector are added to these. No two may have a
  // family of the same name.
  std::vector<std::shared_ptr<prometheus::Collectable>> collectables;
  // OK, or the reason for not being ready. Called from the server's threads.
  // Unset means ready.
  std::function<Status()> ready;
};

// REQUIRES: `server` is not started.
void AddStandardPages(const StandardPages& pages, HttpServer* server);

// Adds another page in the format of /metrics with these collectables only.
// Without metrics the page is a comment with `if_empty` ("no GPU"; one line).
// REQUIRES: `server` is not started.
void AddMetricsPage(
    const std::string& path,
    std::vector<std::shared_ptr<prometheus::Collectable>> collectables,
    HttpServer* server, std::string if_empty = {});

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_METRICS_H_
