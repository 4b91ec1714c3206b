#include "common/wire/probe_wire.h"

#include "common/model/limits.h"
#include "common/wire/fields.h"

namespace lockstep {

LOCKSTEP_FIELDS(ProbeTarget, v1::ProbeRequest::Target) {
  LOCKSTEP_FIELD(node, kNodeName);
  LOCKSTEP_FIELD(address, kIpAddress);
  LOCKSTEP_FIELD(port, Range(1, 65535));
}

LOCKSTEP_FIELDS(ProbeQuery, v1::ProbeRequest) {
  LOCKSTEP_FIELD(id);
  LOCKSTEP_FIELD(targets, AtMost(kMaxProbeTargets));
  LOCKSTEP_FIELD(timeout);
}

LOCKSTEP_FIELDS(ProbeResult, v1::ProbeReply::Result) {
  LOCKSTEP_FIELD(node, kNodeName);
  LOCKSTEP_FIELD(reached);
  LOCKSTEP_FIELD(error, Text(256));
  LOCKSTEP_FIELD(quiet);
}

LOCKSTEP_FIELDS(ProbeAnswer, v1::ProbeReply) {
  LOCKSTEP_FIELD(id);
  LOCKSTEP_FIELD(results, AtMost(kMaxProbeTargets));
}

LOCKSTEP_FIELDS(NeighbourList, v1::Neighbours) {
  LOCKSTEP_FIELD(targets, AtMost(kMaxNeighbours));
}

}  // namespace lockstep
