// Tests whether a host reaches others by TCP: request and result.
#ifndef LOCKSTEP_COMMON_MODEL_PROBE_H_
#define LOCKSTEP_COMMON_MODEL_PROBE_H_

#include <cstdint>
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

  bool operator==(const ProbeResult&) const = default;
};

struct ProbeAnswer {
  uint64_t id = 0;
  std::vector<ProbeResult> results;

  bool operator==(const ProbeAnswer&) const = default;
};

inline constexpr size_t kMaxProbeTargets = 16;

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_PROBE_H_
