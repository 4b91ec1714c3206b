// Which processes can share memory with this one.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_FACTORY_HOST_IDENTITY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_FACTORY_HOST_IDENTITY_H_

#include <string>

namespace lockstep::worker::collective {

// Returns the same text in two processes exactly when they run under one boot
// of one kernel, in one network namespace (which scopes the abstract Unix
// sockets at which they meet) and as one user of one user namespace. It is
// never a host's name: two hosts may have the same name. Empty: the system does
// not tell.
std::string HostIdentity();

// Returns the host's name for people: "node7 (10.0.0.7)".
std::string HostName(const std::string& bind_address);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_FACTORY_HOST_IDENTITY_H_
