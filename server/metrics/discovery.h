// Scrape targets for Prometheus's HTTP service discovery
// (https://prometheus.io/docs/prometheus/latest/http_sd/). Pure.
//
// Each target carries its own `job` ("lockstep-worker", ...), so one
// http_sd_configs suffices. The coordinator's target has no `node` label,
// because its series have their own.
#ifndef LOCKSTEP_SERVER_METRICS_DISCOVERY_H_
#define LOCKSTEP_SERVER_METRICS_DISCOVERY_H_

#include <string>
#include <vector>

#include "server/coordinator/snapshot.h"

namespace lockstep::server {

// A lost node stays for this time, so that monitoring sees that it does not
// answer.
inline constexpr Duration kLostTargetStays = std::chrono::hours(1);

struct DiscoveryOptions {
  std::string cluster;
  // HOST:PORT of the coordinator's HTTP port. Omitted if empty.
  std::string coordinator;
  // That port uses TLS.
  bool tls = false;
};

// Returns why Prometheus cannot reach the node's daemon, or "" if it can.
std::string UnreachableHttp(const NodeInfo& info);

// Returns a JSON list, which may be "[]". Loopback ports are omitted, unless
// the host itself is addressed by loopback. Each daemon reports its scheme;
// ports that other hosts reach always use TLS.
std::string TargetsJson(const std::vector<NodeSnapshot>& nodes,
                        const DiscoveryOptions& options, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_DISCOVERY_H_
