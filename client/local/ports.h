// TCP ports of the daemons: chosen once, then kept.
#ifndef LOCKSTEP_CLIENT_LOCAL_PORTS_H_
#define LOCKSTEP_CLIENT_LOCAL_PORTS_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"

namespace lockstep::cli {

// True if a server could listen on 127.0.0.1:`port` now.
bool PortIsFree(uint16_t port);

// Returns `count` different free loopback ports, at random from 20000..31999:
// below Linux's range for outgoing connections, so that they stay free while
// the cluster is down. Another program may take one before use.
StatusOr<std::vector<uint16_t>> ChoosePorts(int count);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_PORTS_H_
