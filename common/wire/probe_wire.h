// ProbeRequest and ProbeReply of the worker stream, as value_wire.h says.
#ifndef LOCKSTEP_COMMON_WIRE_PROBE_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_PROBE_WIRE_H_

#include <string_view>

#include "common/base/status.h"
#include "common/model/probe.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep {

v1::ProbeRequest ToProto(const ProbeQuery& value);
v1::ProbeReply ToProto(const ProbeAnswer& value);
StatusOr<ProbeQuery> FromProto(const v1::ProbeRequest& value,
                               std::string_view path = "probe_request");
StatusOr<ProbeAnswer> FromProto(const v1::ProbeReply& value,
                                std::string_view path = "probe_reply");

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_PROBE_WIRE_H_
