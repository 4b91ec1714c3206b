#include "server/metrics/discovery.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/host_port.h"
#include "common/model/scrape_address.h"

namespace lockstep::server {
namespace {

using nlohmann::json;

// Older workers do not report TLS; off loopback it is always on.
const char* SchemeOf(const std::string& host, bool tls) {
  return tls || !IsLoopback(host) ? "https" : "http";
}

std::optional<HostPort> ReachableHttp(const NodeInfo& info) {
  return ScrapeAddress(info.http_address, info.address);
}

json Target(const HostPort& address, bool tls, const std::string& role,
            const std::string& path, const DiscoveryOptions& options) {
  return {{"targets", {FormatHostPort(address)}},
          {"labels",
           {{"__metrics_path__", path},
            {"__scheme__", SchemeOf(address.host, tls)},
            {"__meta_lockstep_role", role},
            {"job", "lockstep-" + role},
            {"cluster", options.cluster}}}};
}

bool IsGone(const Member& member, Time now) {
  return member.state == NodeState::kLost &&
         now.mono - member.last_beat > kLostTargetStays;
}

}  // namespace

std::string UnreachableHttp(const NodeInfo& info) {
  return WhyNotScraped(info.http_address, info.address);
}

std::string TargetsJson(const std::vector<NodeSnapshot>& nodes,
                        const DiscoveryOptions& options, Time now) {
  json list = json::array();
  if (const auto own = ParseHostPort(options.coordinator); own.ok()) {
    list.push_back(
        Target(*own, options.tls, "coordinator", "/metrics", options));
  }
  for (const NodeSnapshot& node : nodes) {
    const NodeInfo& info = node.member.info;
    const auto address = ReachableHttp(info);
    if (!address || IsGone(node.member, now)) continue;
    const auto add = [&](const char* role, const char* path) {
      json target = Target(*address, info.http_tls, role, path, options);
      json& labels = target["labels"];
      labels["node"] = labels["__meta_lockstep_node"] = info.name;
      labels["pool"] = labels["__meta_lockstep_pool"] = info.pool;
      list.push_back(std::move(target));
    };
    add("worker", "/metrics");
    if (!info.gpus.empty()) add("dcgm", "/metrics/dcgm");
  }
  // Daemons' names are checked; this covers unchecked text.
  return list.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::server
