// Whether a daemon will be able to listen where it is told to.
#ifndef LOCKSTEP_SERVER_LISTEN_CHECK_H_
#define LOCKSTEP_SERVER_LISTEN_CHECK_H_

#include <string>

#include "common/base/status.h"

namespace lockstep {

// Listens on HOST:PORT for a moment. Another program may take the port right
// after: this finds mistakes, it keeps nothing. InvalidArgument: not an address
// of ours; Unavailable: somebody listens there, or the port is not allowed.
Status CheckCanListen(const std::string& address);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LISTEN_CHECK_H_
