// The part of NVML's C interface that is used: types, numbers, symbols. By
// NVIDIA's published reference (docs.nvidia.com/deploy/nvml-api) and the
// nvml.h of github.com/NVIDIA/go-nvml; its numbers and layouts are stable, a
// changed function gets a new name (_v2).
#ifndef LOCKSTEP_WORKER_DEVICES_NVML_API_H_
#define LOCKSTEP_WORKER_DEVICES_NVML_API_H_

#include <cstddef>
#include <cstdint>

#include "worker/devices/gpu_reading.h"

namespace lockstep::worker::devices::nvml {

using Device = void*;    // nvmlDevice_t
using EventSet = void*;  // nvmlEventSet_t
using Return = int;      // nvmlReturn_t
inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kTimeout = 10;

struct Memory {  // nvmlMemory_t
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;  // With what is reserved.
};
struct MemoryV2 {  // nvmlMemory_v2_t
  unsigned int version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
static_assert(sizeof(MemoryV2) == 40);
inline constexpr unsigned int kMemoryV2 = sizeof(MemoryV2) | (2u << 24);

struct Utilization {  // nvmlUtilization_t, in percent
  unsigned int gpu;
  unsigned int memory;
};
struct PciInfo {  // nvmlPciInfo_t, as of nvmlDeviceGetPciInfo_v3
  char bus_id_legacy[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int device_id;
  unsigned int subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

union FieldNumber {  // nvmlValue_t
  double as_double;
  int as_int;
  unsigned int as_unsigned;
  unsigned long as_unsigned_long;
  unsigned long long as_unsigned_long_long;
  signed long long as_long_long;
  unsigned short as_unsigned_short;
};
struct FieldValue {  // nvmlFieldValue_t
  unsigned int field;
  unsigned int scope;
  long long timestamp;
  long long latency_us;
  int type;  // nvmlValueType_t
  Return result;
  FieldNumber number;
};
static_assert(sizeof(FieldValue) == 40);

struct EventData {  // nvmlEventData_t
  Device device;
  unsigned long long type;
  unsigned long long data;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
static_assert(sizeof(EventData) == 32);
inline constexpr unsigned long long kEventXid = 8;

// The form of nvmlDeviceGetComputeRunningProcesses, which drivers before 460
// have alone, and of ..._v2. Nothing uses ..._v3: its form differs between
// drivers of 535.
struct ProcessV1 {  // nvmlProcessInfo_v1_t
  unsigned int pid;
  unsigned long long memory;
};
static_assert(sizeof(ProcessV1) == 16);
struct ProcessV2 {  // nvmlProcessInfo_v2_t
  unsigned int pid;
  unsigned long long memory;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
static_assert(sizeof(ProcessV2) == 24);
inline constexpr unsigned int kMaxNvlinks = 18;  // NVML_NVLINK_MAX_LINKS

// ---- GPM: what the counters of Hopper and newer GPUs say of the time between
// two samples, which must be 100 ms apart.
using GpmSample = void*;  // nvmlGpmSample_t
struct GpmSupport {       // nvmlGpmSupport_t
  unsigned int version;
  unsigned int supported;
};
struct GpmMetric {  // nvmlGpmMetric_t
  unsigned int id;
  Return result;
  double value;
  const char* short_name;
  const char* long_name;
  const char* unit;
};
static_assert(sizeof(GpmMetric) == 40);
// Its list has grown with drivers (98, 210, 333); a driver looks at the first
// `count` entries. It has room for more than are asked for here.
inline constexpr unsigned int kGpmRoom = 512;
struct GpmMetrics {  // nvmlGpmMetricsGet_t
  unsigned int version;
  unsigned int count;
  GpmSample first;
  GpmSample second;
  GpmMetric metrics[kGpmRoom];
};
static_assert(offsetof(GpmMetrics, metrics) == 24);
inline constexpr unsigned int kGpmVersion = 1;  // Of both.
struct GpmRow {
  GpuValue value;
  unsigned int id;
};
// In percent, NVML_GPM_METRIC_...
inline constexpr GpmRow kGpmRows[] = {
    {GpuValue::kSmActivity, 2},       // SM_UTIL
    {GpuValue::kTensorActivity, 5},   // ANY_TENSOR_UTIL
    {GpuValue::kMemoryActivity, 10},  // DRAM_BW_UTIL
};

// ---- Readings, by the form of the function that gives them -----------------

// Return f(Device, unsigned int*)
struct PlainRow {
  GpuValue value;
  const char* symbol;
  double scale;
};
inline constexpr PlainRow kPlainRows[] = {
    {GpuValue::kPower, "nvmlDeviceGetPowerUsage", 1e-3},  // mW
    {GpuValue::kPowerLimit, "nvmlDeviceGetEnforcedPowerLimit", 1e-3},
    {GpuValue::kPcieReplays, "nvmlDeviceGetPcieReplayCounter", 1},
    {GpuValue::kPcieLinkGeneration, "nvmlDeviceGetCurrPcieLinkGeneration", 1},
    {GpuValue::kPcieLinkWidth, "nvmlDeviceGetCurrPcieLinkWidth", 1},
    {GpuValue::kPcieLinkWidthMax, "nvmlDeviceGetMaxPcieLinkWidth", 1},
};

// Return f(Device, enum, unsigned int*)
struct KindRow {
  GpuValue value;
  const char* symbol;
  int kind;
  double scale;
  bool slow;  // Takes 20 ms.
};
inline constexpr KindRow kKindRows[] = {
    // NVML_TEMPERATURE_GPU; NVML_CLOCK_SM and _MEM in MHz.
    {GpuValue::kTemperatureCore, "nvmlDeviceGetTemperature", 0, 1, false},
    {GpuValue::kClockSm, "nvmlDeviceGetClockInfo", 1, 1e6, false},
    {GpuValue::kClockMemory, "nvmlDeviceGetClockInfo", 2, 1e6, false},
    {GpuValue::kClockMaxSm, "nvmlDeviceGetMaxClockInfo", 1, 1e6, false},
    {GpuValue::kClockMaxMemory, "nvmlDeviceGetMaxClockInfo", 2, 1e6, false},
    // NVML_PCIE_UTIL_TX_BYTES and _RX_BYTES in KiB/s.
    {GpuValue::kPcieTransmit, "nvmlDeviceGetPcieThroughput", 0, 1024, true},
    {GpuValue::kPcieReceive, "nvmlDeviceGetPcieThroughput", 1, 1024, true},
};

// nvmlDeviceGetTotalEccErrors(Device, type, counter, unsigned long long*)
struct EccRow {
  GpuValue value;
  int type;     // 0: corrected, 1: not.
  int counter;  // 0: volatile, 1: aggregate.
};
inline constexpr EccRow kEccRows[] = {
    {GpuValue::kEccCorrectedVolatile, 0, 0},
    {GpuValue::kEccUncorrectedVolatile, 1, 0},
    {GpuValue::kEccCorrectedAggregate, 0, 1},
    {GpuValue::kEccUncorrectedAggregate, 1, 1},
};

// nvmlDeviceGetFieldValues: NVML_FI_DEV_...
inline constexpr unsigned int kAllLinks = UINT32_MAX;
struct FieldRow {
  GpuValue value;
  unsigned int field;
  unsigned int scope;
  double scale;
};
inline constexpr FieldRow kFieldRows[] = {
    {GpuValue::kTemperatureMemory, 82, 0, 1},           // MEMORY_TEMP
    {GpuValue::kNvlinkTransmit, 138, kAllLinks, 1024},  // THROUGHPUT_DATA_TX
    {GpuValue::kNvlinkReceive, 139, kAllLinks, 1024},   // THROUGHPUT_DATA_RX
    {GpuValue::kNvlinkCrcFlitErrors, 38, 0, 1},  // CRC_FLIT_ERROR_COUNT_TOTAL
    {GpuValue::kNvlinkCrcDataErrors, 45, 0, 1},  // CRC_DATA_ERROR_COUNT_TOTAL
    {GpuValue::kNvlinkReplays, 52, 0, 1},        // REPLAY_ERROR_COUNT_TOTAL
    {GpuValue::kNvlinkRecoveries, 59, 0, 1},     // RECOVERY_ERROR_COUNT_TOTAL
};

// nvmlClocksEventReason...
struct ThrottleRow {
  GpuThrottle throttle;
  unsigned long long bit;
};
inline constexpr ThrottleRow kThrottleRows[] = {
    {GpuThrottle::kPowerCap, 0x04},  {GpuThrottle::kHwSlowdown, 0x08},
    {GpuThrottle::kSyncBoost, 0x10}, {GpuThrottle::kSwThermal, 0x20},
    {GpuThrottle::kHwThermal, 0x40}, {GpuThrottle::kPowerBrake, 0x80},
};

}  // namespace lockstep::worker::devices::nvml

#endif  // LOCKSTEP_WORKER_DEVICES_NVML_API_H_
