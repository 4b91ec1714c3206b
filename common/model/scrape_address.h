// The metrics address of a worker daemon as seen from other hosts. Pure.
#ifndef LOCKSTEP_COMMON_MODEL_SCRAPE_ADDRESS_H_
#define LOCKSTEP_COMMON_MODEL_SCRAPE_ADDRESS_H_

#include <optional>
#include <string>

#include "common/base/host_port.h"

namespace lockstep {

// `http_address` is HOST:PORT of the daemon's HTTP port. `address` is its data
// plane address, which replaces a wildcard. Returns nullopt if there is no
// port, or the port is on loopback while the node's address is not: from
// another host it would reach a different daemon.
std::optional<HostPort> ScrapeAddress(const std::string& http_address,
                                      const std::string& address);

// Returns the reason and the remedy in a sentence, or "" if there is an
// address.
std::string WhyNotScraped(const std::string& http_address,
                          const std::string& address);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_SCRAPE_ADDRESS_H_
