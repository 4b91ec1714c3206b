// Resources that a task needs and a host offers. Pure values.
#ifndef LOCKSTEP_COMMON_MODEL_RESOURCES_H_
#define LOCKSTEP_COMMON_MODEL_RESOURCES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace lockstep {

struct Resources {
  // Cores.
  double cpus = 0;
  int64_t memory_bytes = 0;
  int32_t gpus = 0;
  // Compared without case. Empty for any type.
  std::string gpu_type;

  bool operator==(const Resources&) const = default;
};

struct Gpu {
  int32_t index = 0;
  std::string uuid;
  std::string model;
  int64_t memory_bytes = 0;
  // Why the GPU gets no new work, "Xid 79 at 12:00:03 UTC". Empty if it does.
  // The coordinator sets it; daemons leave it empty.
  std::string fault = {};
  // When it gets work again. Absent: not before its host boots or an operator
  // lifts the fault.
  std::optional<WallTime> fault_end = {};
  // An operator has lifted its fault: until then readings that stand do not
  // withhold it again. Absent: none has. The coordinator's, too.
  std::optional<WallTime> lift_end = {};

  bool operator==(const Gpu&) const = default;
};

// "2 cpus, 1.5 GiB, 1 T4". Zero amounts are omitted; "nothing" if all are zero.
std::string Describe(const Resources& r);
// "1 cpu", "0.5 cpus".
std::string DescribeCpus(double cpus);

// "1.5 GiB", "700 MiB", "12 B".
std::string FormatBytes(int64_t bytes);

// True if the models are equal without case or one contains the other ("T4" is
// "NVIDIA Tesla T4"). An empty `wanted` matches all.
bool GpuModelMatches(const std::string& wanted, const std::string& model);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_RESOURCES_H_
