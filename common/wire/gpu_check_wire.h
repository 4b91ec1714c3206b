// Checks of GPUs, as convert.h says: what a daemon is asked, what it answers,
// and what clients get.
#ifndef LOCKSTEP_COMMON_WIRE_GPU_CHECK_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_GPU_CHECK_WIRE_H_

#include "common/model/gpu_check.h"
#include "common/wire/convert.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep {

LOCKSTEP_CONVERTS(GpuCheckPart, "part")
LOCKSTEP_CONVERTS(GpuCheck, "check")
LOCKSTEP_CONVERTS_AS(GpuCheckOrder, v1::GpuCheckRequest, "gpu_check_request")
LOCKSTEP_CONVERTS_AS(GpuCheckAnswer, v1::GpuCheckReply, "gpu_check_reply")

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_GPU_CHECK_WIRE_H_
