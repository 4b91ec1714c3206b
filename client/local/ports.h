// TCP ports of the daemons: chosen once, then kept.
#ifndef LOCKSTEP_CLIENT_LOCAL_PORTS_H_
#define LOCKSTEP_CLIENT_LOCAL_PORTS_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// Whether a server could listen on 127.0.0.1:`port` now.
bool PortIsFree(uint16_t port);

// `count` different free loopback ports, at random from 20000..31999: below
// the range from which Linux takes ports of outgoing connections, so that they
// are still free after the cluster was down. Another program may take one
// before it is used.
StatusOr<std::vector<uint16_t>> ChoosePorts(int count);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_PORTS_H_
