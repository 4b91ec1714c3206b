// Observes calls, to fill a daemon's metrics.
#ifndef LOCKSTEP_COMMON_RPC_CALL_OBSERVER_H_
#define LOCKSTEP_COMMON_RPC_CALL_OBSERVER_H_

#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

// gRPC's threads call it concurrently, so it must be quick and never block.
// `method` is "/lockstep.v1.JobService/GetJob". Unknown methods are reported as
// "unknown", so it is safe as a label.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void OnStarted(std::string_view method) = 0;
  // Called once for each OnStarted. `took` is 0 for a call that was rejected
  // before its handler. A call whose client went away is Cancelled.
  virtual void OnHandled(std::string_view method, StatusCode code,
                         Duration took) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALL_OBSERVER_H_
