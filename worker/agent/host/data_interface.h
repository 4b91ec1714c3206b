// Finds the network interface that has an address.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_DATA_INTERFACE_H_
#define LOCKSTEP_WORKER_AGENT_HOST_DATA_INTERFACE_H_

#include <string>

namespace lockstep {

// "eth0" for the numeric `address` of this host's; all of 127.0.0.0/8 is the
// loopback's. Empty where no interface that is up has it.
std::string InterfaceOf(const std::string& address);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_HOST_DATA_INTERFACE_H_
