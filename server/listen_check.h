// Checks that a daemon can listen on its address.
#ifndef LOCKSTEP_SERVER_LISTEN_CHECK_H_
#define LOCKSTEP_SERVER_LISTEN_CHECK_H_

#include <string>

#include "common/base/status.h"

namespace lockstep::server {

// Listens on HOST:PORT for a moment. It finds mistakes but does not reserve the
// port. InvalidArgument if it is not an address of this machine; Unavailable if
// the port is in use or not allowed.
Status CheckCanListen(const std::string& address);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LISTEN_CHECK_H_
