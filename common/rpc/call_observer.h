// What happens to calls, for metrics. A daemon fills counters with it.
#ifndef LOCKSTEP_COMMON_RPC_CALL_OBSERVER_H_
#define LOCKSTEP_COMMON_RPC_CALL_OBSERVER_H_

#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

// Called from gRPC's threads, many at once: be quick and never block.
// `method` is "/lockstep.v1.JobService/GetJob"; calls of methods that do not
// exist are reported as "unknown", so it is fit for a label.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void OnStarted(std::string_view method) = 0;
  // Once for each OnStarted. `took` is 0 for a call that was refused before it
  // reached its handler. A call whose client went away is Cancelled.
  virtual void OnHandled(std::string_view method, StatusCode code,
                         Duration took) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_CALL_OBSERVER_H_
