// The link from a job's page to its dashboard in Grafana. Pure.
#ifndef LOCKSTEP_SERVER_PAGE_GRAFANA_LINK_H_
#define LOCKSTEP_SERVER_PAGE_GRAFANA_LINK_H_

#include <optional>
#include <string>

#include "common/base/clock.h"

namespace lockstep::server {

// Returns what is wrong with a value of --grafana-url, or "". It is an http(s)
// address with {job}; {cluster}, {from} and {to} may be in it, too.
std::string GrafanaUrlFault(const std::string& url);

// Returns the address with the job's name, the cluster's, and the time that
// Grafana shows, in milliseconds since 1970; without `to` that ends now. Names
// are %-encoded. REQUIRES: GrafanaUrlFault(url) is "".
std::string GrafanaLink(const std::string& url, const std::string& cluster,
                        const std::string& job, WallTime from,
                        std::optional<WallTime> to);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_GRAFANA_LINK_H_
