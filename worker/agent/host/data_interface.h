// Finds the network interface that has an address.
#ifndef LOCKSTEP_WORKER_AGENT_HOST_DATA_INTERFACE_H_
#define LOCKSTEP_WORKER_AGENT_HOST_DATA_INTERFACE_H_

#include <string>

namespace lockstep::worker::agent {

// Returns the interface of the numeric `address` of this host, such as "eth0";
// 127.0.0.0/8 is the loopback's. Empty if no active interface has it.
std::string InterfaceOf(const std::string& address);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_HOST_DATA_INTERFACE_H_
