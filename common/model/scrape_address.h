// Where the metrics of a worker daemon are found from elsewhere. Pure.
#ifndef LOCKSTEP_COMMON_MODEL_SCRAPE_ADDRESS_H_
#define LOCKSTEP_COMMON_MODEL_SCRAPE_ADDRESS_H_

#include <optional>
#include <string>

#include "common/base/host_port.h"

namespace lockstep {

// `http_address`: HOST:PORT of its HTTP port, as the daemon says; `address`: of
// its data plane, which takes the place of "any". nullopt: it has no port, or
// only its own host reaches it while the node's address is another's: from
// elsewhere that port would be another daemon's.
std::optional<HostPort> ScrapeAddress(const std::string& http_address,
                                      const std::string& address);

// Why there is none and what would help, in a sentence; empty: there is one.
std::string WhyNotScraped(const std::string& http_address,
                          const std::string& address);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_SCRAPE_ADDRESS_H_
