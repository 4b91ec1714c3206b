#include "common/wire/probe_wire.h"

#include "common/wire/field_checker.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr size_t kMaxError = 256;

}  // namespace

v1::ProbeRequest ToProto(const ProbeQuery& value) {
  v1::ProbeRequest out;
  out.set_id(value.id);
  for (const ProbeTarget& target : value.targets) {
    auto* const added = out.add_targets();
    added->set_node(target.node);
    added->set_address(target.address);
    added->set_port(target.port);
  }
  *out.mutable_timeout() = ToProto(value.timeout);
  return out;
}

StatusOr<ProbeQuery> FromProto(const v1::ProbeRequest& value,
                               std::string_view path) {
  FieldChecker check(path);
  ProbeQuery out;
  out.id = value.id();
  const auto targets = static_cast<size_t>(value.targets_size());
  check.Count("targets", targets, kMaxProbeTargets);
  for (size_t i = 0; check.ok() && i < targets; ++i) {
    const auto& target = value.targets(static_cast<int>(i));
    FieldChecker one(check.At("targets", i));
    one.NodeName("node", target.node());
    one.Require(IsIpAddress(target.address()), "address",
                "is not an IP address");
    one.Range("port", target.port(), 1, 65535);
    check.Add(one.status());
    out.targets.push_back({target.node(), target.address(), target.port()});
  }
  check.Take(FromProto(value.timeout(), check.At("timeout")), &out.timeout);
  if (!check.ok()) return check.status();
  return out;
}

v1::ProbeReply ToProto(const ProbeAnswer& value) {
  v1::ProbeReply out;
  out.set_id(value.id);
  for (const ProbeResult& result : value.results) {
    auto* const added = out.add_results();
    added->set_node(result.node);
    added->set_reached(result.reached);
    added->set_error(result.error);
  }
  return out;
}

StatusOr<ProbeAnswer> FromProto(const v1::ProbeReply& value,
                                std::string_view path) {
  FieldChecker check(path);
  ProbeAnswer out;
  out.id = value.id();
  const auto results = static_cast<size_t>(value.results_size());
  check.Count("results", results, kMaxProbeTargets);
  for (size_t i = 0; check.ok() && i < results; ++i) {
    const auto& result = value.results(static_cast<int>(i));
    FieldChecker one(check.At("results", i));
    one.NodeName("node", result.node());
    one.Text("error", result.error(), kMaxError);
    check.Add(one.status());
    out.results.push_back({result.node(), result.reached(), result.error()});
  }
  if (!check.ok()) return check.status();
  return out;
}

}  // namespace lockstep
