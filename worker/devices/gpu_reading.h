// Readings of a GPU in base units: ratios 0..1, bytes, watts, joules, degrees
// Celsius, hertz, counts. Pure values.
#ifndef LOCKSTEP_WORKER_DEVICES_GPU_READING_H_
#define LOCKSTEP_WORKER_DEVICES_GPU_READING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::worker::devices {

inline constexpr size_t kMaxGpuProcesses = 256;

enum class GpuValue : size_t {
  // Fraction of the last sample period in which a kernel ran, and in which
  // memory was read or written.
  kUtilization,
  kMemoryAccess,
  // Of the time between two readings, averaged over the multiprocessors: in
  // which at least one warp was resident, in which the tensor cores worked. And
  // the share of the memory's bandwidth. Hopper and newer.
  kSmActivity,
  kTensorActivity,
  kMemoryActivity,
  kMemoryUsed,
  kMemoryFree,
  kMemoryReserved,
  kMemoryTotal,
  kPower,
  kPowerLimit,
  kEnergy,  // Since the driver was loaded.
  kTemperatureCore,
  kTemperatureMemory,
  kClockSm,
  kClockMemory,
  kClockMaxSm,
  kClockMaxMemory,
  // Bytes per second, measured over about 20 ms.
  kPcieTransmit,
  kPcieReceive,
  kPcieReplays,
  kPcieLinkGeneration,
  kPcieLinkWidth,
  kPcieLinkWidthMax,  // Of this GPU in this host.
  // Total of all links since the driver was loaded.
  kNvlinkTransmit,
  kNvlinkReceive,
  kNvlinkCrcFlitErrors,
  kNvlinkCrcDataErrors,
  kNvlinkReplays,
  kNvlinkRecoveries,
  kNvlinksActive,
  // Volatile: since the driver was loaded. Aggregate: over the GPU's lifetime.
  kEccCorrectedVolatile,
  kEccUncorrectedVolatile,
  kEccCorrectedAggregate,
  kEccUncorrectedAggregate,
  kRowsRemappedCorrected,
  kRowsRemappedUncorrected,
  kRowRemapPending,  // 0 or 1.
  kRowRemapFailure,  // 0 or 1.
};
inline constexpr size_t kGpuValues =
    static_cast<size_t>(GpuValue::kRowRemapFailure) + 1;

// Reasons for which a GPU runs slower than it can. Idleness and clocks set by
// an administrator are not throttling.
enum class GpuThrottle : size_t {
  kPowerCap,    // The power limit.
  kSwThermal,   // Too hot, by the driver.
  kHwThermal,   // Too hot, by the hardware.
  kPowerBrake,  // A signal from the power supply.
  kHwSlowdown,  // The hardware, for the two above or another reason.
  kSyncBoost,   // Waits for the slowest GPU of its group.
};
inline constexpr size_t kGpuThrottles =
    static_cast<size_t>(GpuThrottle::kSyncBoost) + 1;
// "power_cap", "sw_thermal", "hw_thermal", "power_brake", "hw_slowdown",
// "sync_boost".
const char* Name(GpuThrottle throttle);

// A process with a compute context on a GPU.
struct GpuProcess {
  // By the driver's count: that of the host, unless the daemon is in a pid
  // namespace of its own.
  int64_t pid = 0;
  // Absent: the driver does not tell.
  std::optional<int64_t> memory_bytes;

  bool operator==(const GpuProcess&) const = default;
};

// A value that this GPU or driver does not support is absent.
struct GpuReading {
  int32_t index = 0;
  // False if the GPU does not answer; it may have fallen off the bus. `error`
  // is the driver's message.
  bool up = true;
  std::string error;
  std::array<std::optional<double>, kGpuValues> values{};
  // Currently active GpuThrottle reasons; absent: unknown.
  std::optional<std::array<bool, kGpuThrottles>> throttled;
  // At most kMaxGpuProcesses. Without those that only draw.
  std::optional<std::vector<GpuProcess>> processes;
  // Since sampling began.
  std::array<double, kGpuThrottles> throttled_seconds{};

  const std::optional<double>& Get(GpuValue value) const {
    return values[static_cast<size_t>(value)];
  }
  void Set(GpuValue value, double number) {
    values[static_cast<size_t>(value)] = number;
  }
};

// Xids with their own counters; all others share one. 13 and 31 are mostly
// faults of the program, the rest of the GPU, its memory or its links
// (docs.nvidia.com/deploy/xid-errors).
inline constexpr int kCountedXids[] = {13, 31, 48, 63,  64, 74,
                                       79, 94, 95, 119, 120};
inline constexpr size_t kXidClasses = std::size(kCountedXids) + 1;
// Returns the index of `xid` in kCountedXids; others share the last index.
size_t XidClass(uint64_t xid);
// "79", ..., "other".
std::string XidClassName(size_t xid_class);

// Errors of a GPU since sampling began.
struct GpuXids {
  static constexpr size_t kNewest = 32;
  std::array<uint64_t, kXidClasses> counts{};
  uint64_t total = 0;
  // The newest ones: the number `n` from 0 is at n % kNewest. One fatal Xid may
  // be followed by others within a millisecond (45 and 154).
  std::array<uint64_t, kNewest> newest{};

  // 0: none.
  uint64_t last() const {
    return total == 0 ? 0 : newest[(total - 1) % kNewest];
  }
  void Add(uint64_t xid) {
    ++counts[XidClass(xid)];
    newest[total++ % kNewest] = xid;
  }
};

}  // namespace lockstep::worker::devices

#endif  // LOCKSTEP_WORKER_DEVICES_GPU_READING_H_
