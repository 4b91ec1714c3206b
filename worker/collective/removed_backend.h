// Names of backends that lockstep no longer has.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_REMOVED_BACKEND_H_
#define LOCKSTEP_WORKER_COLLECTIVE_REMOVED_BACKEND_H_

#include <string_view>

#include "common/base/status.h"

namespace lockstep::worker::collective {

// InvalidArgument for such a name: the sentence says what to use instead.
inline Status CheckNotRemoved(std::string_view backend) {
  if (backend != "gloo") return OkStatus();
  return InvalidArgument(
      "backend gloo is no longer available; use tcp, or auto, which chooses by "
      "where the ranks are");
}

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_REMOVED_BACKEND_H_
