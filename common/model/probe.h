// Tests whether a host reaches others by TCP: request and result.
#ifndef LOCKSTEP_COMMON_MODEL_PROBE_H_
#define LOCKSTEP_COMMON_MODEL_PROBE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/job.h"

namespace lockstep {

struct ProbeTarget {
  NodeName node;
  // An IP address.
  std::string address;
  int32_t port = 0;

  bool operator==(const ProbeTarget&) const = default;
};

struct ProbeQuery {
  // Unique within its stream.
  uint64_t id = 0;
  std::vector<ProbeTarget> targets;
  Duration timeout{};

  bool operator==(const ProbeQuery&) const = default;
};

struct ProbeResult {
  NodeName node;
  // True after a refusal, too: the host is up, but its daemon is not.
  bool reached = false;
  // The error of a failed attempt: "Connection timed out".
  std::string error;
  // How long the asked daemon has listened without a contact of that node's
  // daemon. Absent: unknown.
  std::optional<Duration> quiet = std::nullopt;

  bool operator==(const ProbeResult&) const = default;
};

struct ProbeAnswer {
  uint64_t id = 0;
  std::vector<ProbeResult> results;

  bool operator==(const ProbeAnswer&) const = default;
};

inline constexpr size_t kMaxProbeTargets = 16;

// The daemons that a node asks for a sign of life while the coordinator does
// not answer.
struct NeighbourList {
  std::vector<ProbeTarget> targets;

  bool operator==(const NeighbourList&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_PROBE_H_
