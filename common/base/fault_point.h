// Named places where a test makes a process die or fail.
//
// A spec is "name=crash@2,other=error@1": the 2nd time control passes `name`
// the process exits with kFaultExitCode at once (no destructors, like a
// power cut); at `other` FaultPoint returns an Internal error the 1st time.
// "other=error@1+" returns it the 1st time and each time after that.
// Without EnableFaults, which only a binary started with --allow-faults calls,
// a fault point is a relaxed load and does nothing.
#ifndef LOCKSTEP_COMMON_BASE_FAULT_POINT_H_
#define LOCKSTEP_COMMON_BASE_FAULT_POINT_H_

#include <string>

#include "common/base/status.h"

namespace lockstep {

inline constexpr int kFaultExitCode = 85;

// InvalidArgument names the part that cannot be parsed. Call it once, before
// threads start.
Status EnableFaults(const std::string& spec);

Status FaultPoint(const char* name);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_FAULT_POINT_H_
