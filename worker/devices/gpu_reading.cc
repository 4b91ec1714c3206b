#include "worker/devices/gpu_reading.h"

namespace lockstep::worker::devices {

const char* Name(GpuThrottle throttle) {
  switch (throttle) {
    case GpuThrottle::kPowerCap:
      return "power_cap";
    case GpuThrottle::kSwThermal:
      return "sw_thermal";
    case GpuThrottle::kHwThermal:
      return "hw_thermal";
    case GpuThrottle::kPowerBrake:
      return "power_brake";
    case GpuThrottle::kHwSlowdown:
      return "hw_slowdown";
    case GpuThrottle::kSyncBoost:
      return "sync_boost";
  }
  return "unknown";
}

size_t XidClass(uint64_t xid) {
  for (size_t i = 0; i < std::size(kCountedXids); ++i) {
    if (static_cast<uint64_t>(kCountedXids[i]) == xid) return i;
  }
  return kXidClasses - 1;
}

std::string XidClassName(size_t xid_class) {
  return xid_class < std::size(kCountedXids)
             ? std::to_string(kCountedXids[xid_class])
             : "other";
}

}  // namespace lockstep::worker::devices
