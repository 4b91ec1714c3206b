// ProbeRequest and ProbeReply of the worker stream, as convert.h says.
#ifndef LOCKSTEP_COMMON_WIRE_PROBE_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_PROBE_WIRE_H_

#include "common/model/probe.h"
#include "common/wire/convert.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep {

LOCKSTEP_CONVERTS_AS(ProbeQuery, v1::ProbeRequest, "probe_request")
LOCKSTEP_CONVERTS_AS(ProbeAnswer, v1::ProbeReply, "probe_reply")
LOCKSTEP_CONVERTS_AS(NeighbourList, v1::Neighbours, "neighbours")

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_PROBE_WIRE_H_
