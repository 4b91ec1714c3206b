// What heartbeats tell about the GPUs of a node, and about processes that its
// ended ranks left. Pure; for membership.cc.
#ifndef LOCKSTEP_SERVER_CORE_MEMBER_GPUS_H_
#define LOCKSTEP_SERVER_CORE_MEMBER_GPUS_H_

#include <string>

#include "server/core/gpu_verdict.h"
#include "server/core/membership.h"

namespace lockstep::server {

// Adds an event from outside a command, which must be stored.
void AddEvent(Member* member, Reason reason, std::string message, WallTime now);

// Records what `readings`, which are newer than those of `member`, change about
// its GPUs: silence, errors, verdicts, GPUs that are not free, and stuck
// processes. Adds the events.
void TakeGpuReadings(Member* member, const NodeReadings& readings,
                     GpuJudge* judge, Time now);

// The GPU gets no new work from now on. Without an end it stays so, whatever
// else is found.
void SetFault(Member* member, int32_t index, const GpuVerdict& verdict,
              Reason reason, Time now);

// Ends the verdicts whose time is over, or has the GPU wait for a check
// (member_checks.h). Returns true if a GPU gets work again.
bool ExpireFaults(Member* member, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_MEMBER_GPUS_H_
