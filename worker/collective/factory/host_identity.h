// Whose memory this process can share.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_FACTORY_HOST_IDENTITY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_FACTORY_HOST_IDENTITY_H_

#include <string>

namespace lockstep {

// The same text in two processes exactly when they run under one boot of one
// kernel, in one network namespace (they meet at an abstract Unix socket,
// which it scopes) and as one user of one user namespace. Never a host's
// name: two hosts may have the same. Empty where the system does not say.
std::string HostIdentity();

// For people: "node7 (10.0.0.7)".
std::string HostName(const std::string& bind_address);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_FACTORY_HOST_IDENTITY_H_
