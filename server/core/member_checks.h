// Checks of GPUs: which are due, and what their results change. Pure; for
// membership.cc and the coordinator's GpuChecks.
//
// A GPU whose time of being withheld is over waits for a check, if its daemon
// can check GPUs, and is checked once no job holds it. Otherwise it gets work
// again without one. An operator may ask for a check of any GPU that is not
// held.
//
// A GPU that is being checked gets no work. It passes if all parts of the check
// do and its readings gave no verdict meanwhile; then it loses the fault that
// it had when the check began. One that fails is withheld, longer each time,
// unless a fault without end keeps it anyway.
#ifndef LOCKSTEP_SERVER_CORE_MEMBER_CHECKS_H_
#define LOCKSTEP_SERVER_CORE_MEMBER_CHECKS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/gpu_check.h"
#include "server/core/gpu_verdict.h"
#include "server/core/membership.h"

namespace lockstep::server {

// For all GPUs of one order, which are checked at once; a check takes about
// 20 s.
inline constexpr Duration kGpuCheckWithin = std::chrono::seconds(60);
// How much longer the coordinator waits for the answer.
inline constexpr Duration kGpuCheckReserve = std::chrono::seconds(15);
// Between a check that a daemon refused and the next one.
inline constexpr Duration kGpuCheckPause = std::chrono::minutes(1);

// What an operator may have checked: `gpus`, or all that may be if it is empty.
// `held`: the GPUs that jobs hold. InvalidArgument: the node has no such GPU.
// FailedPrecondition: one of them may not be checked now, or none may.
// Unimplemented: the daemon has no check. Unavailable: the node is silent.
StatusOr<std::vector<int32_t>> MayCheck(const Member& member,
                                        const std::vector<int32_t>& gpus,
                                        const std::set<int32_t>& held);

// The due GPUs that can be checked now.
std::vector<int32_t> DueChecks(const Member& member,
                               const std::set<int32_t>& held, Time now);

// A good GPU outside `gpus` that is free for an all-reduce with the only one of
// them; absent if they are several or none is free.
std::optional<int32_t> PartnerFor(const Member& member,
                                  const std::vector<int32_t>& gpus,
                                  const std::set<int32_t>& held);

// The GPUs of `order`, its partner included, are being checked from now on.
void BeginCheck(Member* member, const GpuCheckOrder& order, bool asked,
                Time now);

// Takes the answer to the order of that id, and adds the events. A GPU that the
// answer lacks counts as not checked. Returns the checks of the order's GPUs
// with what they mean: `failure` has what readings said meanwhile.
std::vector<GpuCheck> EndCheck(Member* member, const GpuCheckAnswer& answer,
                               GpuJudge* judge, Time now);

// Whether the GPU is being checked; then its verdicts are kept for the end.
OpenCheck* FindCheck(Member* member, int32_t gpu);

// What GpuTrouble says of a GPU that is being checked.
std::string DescribeCheck(const Gpu& gpu, const OpenCheck& check);

// A GPU's time of being withheld is over. Returns true if it gets work again
// now, with the event; otherwise it waits for a check.
bool EndFault(Member* member, Gpu* gpu, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_MEMBER_CHECKS_H_
