#include "worker/agent/metrics/gpu_metrics.h"

#include <cmath>

namespace lockstep::worker::agent {
namespace {

using devices::GpuReading;
using devices::GpuThrottle;
using devices::GpuValue;
using devices::GpuXids;
using devices::kGpuThrottles;
using devices::kXidClasses;
using devices::XidClassName;
using prometheus::MetricType;
constexpr MetricType kCounter = MetricType::Counter;
constexpr MetricType kGauge = MetricType::Gauge;

struct Row {
  GpuValue value;
  MetricType type;
  const char* name;
  const char* help;
  // Beside gpu, uuid and model; may be null.
  const char* label1 = nullptr;
  const char* text1 = nullptr;
  const char* label2 = nullptr;
  const char* text2 = nullptr;
};

constexpr char kMemory[] = "Memory of the GPU.";
constexpr char kTemperature[] = "Temperature by sensor.";
constexpr char kClock[] = "Clock by domain.";
constexpr char kClockMax[] = "Highest clock by domain.";
constexpr char kPcie[] =
    "PCIe throughput over 20 ms, of one GPU at each sample, by direction.";
constexpr char kNvlink[] =
    "Data over all NVLinks since the driver was loaded, by direction.";
constexpr char kNvlinkErrors[] =
    "Errors of all NVLinks since the driver was loaded, by kind.";
constexpr char kEcc[] =
    "Memory errors: volatile since the driver was loaded, aggregate in the "
    "GPU's life.";
constexpr char kRemapped[] = "Rows of memory replaced by spare ones, by cause.";

// lockstep_gpu_NAME.
constexpr Row kRows[] = {
    {GpuValue::kUtilization, kGauge, "utilization_ratio",
     "Fraction of the last sample period in which a kernel ran."},
    {GpuValue::kMemoryAccess, kGauge, "memory_access_ratio",
     "Fraction of the last sample period in which memory was read or written."},
    {GpuValue::kSmActivity, kGauge, "sm_active_ratio",
     "Fraction of the time since the last reading, averaged over the "
     "multiprocessors, in which a warp was resident; Hopper and newer."},
    {GpuValue::kTensorActivity, kGauge, "tensor_active_ratio",
     "Fraction of the time since the last reading, averaged over the "
     "multiprocessors, in which the tensor cores worked; Hopper and newer."},
    {GpuValue::kMemoryActivity, kGauge, "dram_active_ratio",
     "Share of the memory's bandwidth since the last reading; Hopper and "
     "newer."},
    {GpuValue::kMemoryUsed, kGauge, "memory_used_bytes",
     "Memory in use by programs."},
    {GpuValue::kMemoryFree, kGauge, "memory_free_bytes", "Memory not in use."},
    {GpuValue::kMemoryReserved, kGauge, "memory_reserved_bytes",
     "Memory reserved by the driver."},
    {GpuValue::kMemoryTotal, kGauge, "memory_total_bytes", kMemory},
    {GpuValue::kPower, kGauge, "power_watts", "Power draw."},
    {GpuValue::kPowerLimit, kGauge, "power_limit_watts",
     "Power limit in force."},
    {GpuValue::kEnergy, kCounter, "energy_joules_total",
     "Energy since the driver was loaded."},
    {GpuValue::kTemperatureCore, kGauge, "temperature_celsius", kTemperature,
     "sensor", "core"},
    {GpuValue::kTemperatureMemory, kGauge, "temperature_celsius", kTemperature,
     "sensor", "memory"},
    {GpuValue::kClockSm, kGauge, "clock_hertz", kClock, "domain", "sm"},
    {GpuValue::kClockMemory, kGauge, "clock_hertz", kClock, "domain", "memory"},
    {GpuValue::kClockMaxSm, kGauge, "clock_max_hertz", kClockMax, "domain",
     "sm"},
    {GpuValue::kClockMaxMemory, kGauge, "clock_max_hertz", kClockMax, "domain",
     "memory"},
    {GpuValue::kPcieTransmit, kGauge, "pcie_bytes_per_second", kPcie,
     "direction", "transmit"},
    {GpuValue::kPcieReceive, kGauge, "pcie_bytes_per_second", kPcie,
     "direction", "receive"},
    {GpuValue::kPcieReplays, kCounter, "pcie_replays_total",
     "PCIe packets that were sent again."},
    {GpuValue::kPcieLinkGeneration, kGauge, "pcie_link_generation",
     "PCIe generation of the link now."},
    {GpuValue::kPcieLinkWidth, kGauge, "pcie_link_width",
     "Lanes of the PCIe link now."},
    {GpuValue::kNvlinkTransmit, kCounter, "nvlink_bytes_total", kNvlink,
     "direction", "transmit"},
    {GpuValue::kNvlinkReceive, kCounter, "nvlink_bytes_total", kNvlink,
     "direction", "receive"},
    {GpuValue::kNvlinkCrcFlitErrors, kCounter, "nvlink_errors_total",
     kNvlinkErrors, "kind", "crc_flit"},
    {GpuValue::kNvlinkCrcDataErrors, kCounter, "nvlink_errors_total",
     kNvlinkErrors, "kind", "crc_data"},
    {GpuValue::kNvlinkReplays, kCounter, "nvlink_errors_total", kNvlinkErrors,
     "kind", "replay"},
    {GpuValue::kNvlinkRecoveries, kCounter, "nvlink_errors_total",
     kNvlinkErrors, "kind", "recovery"},
    {GpuValue::kEccCorrectedVolatile, kCounter, "ecc_errors_total", kEcc,
     "severity", "corrected", "scope", "volatile"},
    {GpuValue::kEccUncorrectedVolatile, kCounter, "ecc_errors_total", kEcc,
     "severity", "uncorrected", "scope", "volatile"},
    {GpuValue::kEccCorrectedAggregate, kCounter, "ecc_errors_total", kEcc,
     "severity", "corrected", "scope", "aggregate"},
    {GpuValue::kEccUncorrectedAggregate, kCounter, "ecc_errors_total", kEcc,
     "severity", "uncorrected", "scope", "aggregate"},
    {GpuValue::kRowsRemappedCorrected, kGauge, "remapped_rows", kRemapped,
     "severity", "corrected"},
    {GpuValue::kRowsRemappedUncorrected, kGauge, "remapped_rows", kRemapped,
     "severity", "uncorrected"},
    {GpuValue::kRowRemapPending, kGauge, "row_remap_pending",
     "1 while rows wait for a reset of the GPU to be replaced."},
    {GpuValue::kRowRemapFailure, kGauge, "row_remap_failure",
     "1 when a row could not be replaced."},
};

// DCGM's field, its unit: our value times `scale`. Of dcgm-exporter's
// default-counters.csv and DCGM's field reference.
struct DcgmRow {
  GpuValue value;
  MetricType type;
  const char* name;
  double scale;
  const char* help;
};
constexpr double kMib = 1.0 / (1 << 20);
constexpr DcgmRow kDcgmRows[] = {
    {GpuValue::kClockSm, kGauge, "DCGM_FI_DEV_SM_CLOCK", 1e-6,
     "SM clock frequency (in MHz)."},
    {GpuValue::kClockMemory, kGauge, "DCGM_FI_DEV_MEM_CLOCK", 1e-6,
     "Memory clock frequency (in MHz)."},
    {GpuValue::kTemperatureMemory, kGauge, "DCGM_FI_DEV_MEMORY_TEMP", 1,
     "Memory temperature (in C)."},
    {GpuValue::kTemperatureCore, kGauge, "DCGM_FI_DEV_GPU_TEMP", 1,
     "GPU temperature (in C)."},
    {GpuValue::kPower, kGauge, "DCGM_FI_DEV_POWER_USAGE", 1,
     "Power draw (in W)."},
    {GpuValue::kPowerLimit, kGauge, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 1,
     "Power limit in force (in W)."},
    {GpuValue::kEnergy, kCounter, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3,
     "Total energy consumption since boot (in mJ)."},
    {GpuValue::kPcieReplays, kCounter, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1,
     "Total number of PCIe retries."},
    {GpuValue::kUtilization, kGauge, "DCGM_FI_DEV_GPU_UTIL", 100,
     "GPU utilization (in %)."},
    {GpuValue::kMemoryAccess, kGauge, "DCGM_FI_DEV_MEM_COPY_UTIL", 100,
     "Memory utilization (in %)."},
    {GpuValue::kMemoryFree, kGauge, "DCGM_FI_DEV_FB_FREE", kMib,
     "Framebuffer memory free (in MiB)."},
    {GpuValue::kMemoryUsed, kGauge, "DCGM_FI_DEV_FB_USED", kMib,
     "Framebuffer memory used (in MiB)."},
    {GpuValue::kMemoryReserved, kGauge, "DCGM_FI_DEV_FB_RESERVED", kMib,
     "Framebuffer memory reserved (in MiB)."},
    {GpuValue::kPcieTransmit, kGauge, "DCGM_FI_PROF_PCIE_TX_BYTES", 1,
     "PCIe transmit rate (in bytes per second)."},
    {GpuValue::kPcieReceive, kGauge, "DCGM_FI_PROF_PCIE_RX_BYTES", 1,
     "PCIe receive rate (in bytes per second)."},
    {GpuValue::kSmActivity, kGauge, "DCGM_FI_PROF_SM_ACTIVE", 1,
     "The ratio of cycles an SM has at least 1 warp assigned."},
    {GpuValue::kTensorActivity, kGauge, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1,
     "Ratio of cycles the tensor (HMMA) pipe is active."},
    {GpuValue::kMemoryActivity, kGauge, "DCGM_FI_PROF_DRAM_ACTIVE", 1,
     "Ratio of cycles the device memory interface is active sending or "
     "receiving data."},
    {GpuValue::kEccCorrectedVolatile, kCounter, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
     1, "Total number of single-bit volatile ECC errors."},
    {GpuValue::kEccUncorrectedVolatile, kCounter,
     "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1,
     "Total number of double-bit volatile ECC errors."},
    {GpuValue::kEccCorrectedAggregate, kCounter,
     "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 1,
     "Total number of single-bit persistent ECC errors."},
    {GpuValue::kEccUncorrectedAggregate, kCounter,
     "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 1,
     "Total number of double-bit persistent ECC errors."},
    {GpuValue::kRowsRemappedCorrected, kCounter,
     "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 1,
     "Number of remapped rows for correctable errors."},
    {GpuValue::kRowsRemappedUncorrected, kCounter,
     "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1,
     "Number of remapped rows for uncorrectable errors."},
    {GpuValue::kRowRemapFailure, kGauge, "DCGM_FI_DEV_ROW_REMAP_FAILURE", 1,
     "Whether remapping of rows has failed."},
    {GpuValue::kNvlinkCrcFlitErrors, kCounter,
     "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 1,
     "Total number of NVLink flow-control CRC errors."},
    {GpuValue::kNvlinkCrcDataErrors, kCounter,
     "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 1,
     "Total number of NVLink data CRC errors."},
    {GpuValue::kNvlinkReplays, kCounter,
     "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 1,
     "Total number of NVLink retries."},
    {GpuValue::kNvlinkRecoveries, kCounter,
     "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 1,
     "Total number of NVLink recovery errors."},
};

MetricLabels LabelsOf(const Gpu& gpu) {
  return {{"gpu", std::to_string(gpu.index)},
          {"uuid", gpu.uuid},
          {"model", gpu.model}};
}

MetricLabels With(MetricLabels labels, const char* name,
                  const std::string& text) {
  labels.emplace_back(name, text);
  return labels;
}

void CollectReading(const GpuReading& reading, const MetricLabels& labels,
                    MetricFamilies* out) {
  for (const Row& row : kRows) {
    const auto& value = reading.Get(row.value);
    if (!value) continue;
    MetricLabels all = labels;
    if (row.label1 != nullptr) all.emplace_back(row.label1, row.text1);
    if (row.label2 != nullptr) all.emplace_back(row.label2, row.text2);
    out->Add(row.type, std::string("lockstep_gpu_") + row.name, row.help,
             *value, all);
  }
  for (size_t i = 0; reading.throttled && i < kGpuThrottles; ++i) {
    const MetricLabels all =
        With(labels, "reason", Name(static_cast<GpuThrottle>(i)));
    out->Gauge("lockstep_gpu_throttle_active",
               "1 while the GPU is slowed down, by reason.",
               (*reading.throttled)[i] ? 1 : 0, all);
    out->Counter(
        "lockstep_gpu_throttle_seconds_total",
        "Sampled time of slowdown since this daemon started, by reason.",
        reading.throttled_seconds[i], all);
  }
}

const GpuReading* ReadingOf(const GpuPageInput& input, size_t i) {
  return i < input.status.readings.size() ? &input.status.readings[i] : nullptr;
}

MetricLabels DcgmLabels(const GpuPageInput& input, size_t i) {
  const Gpu& gpu = input.gpus[i];
  MetricLabels labels = {{"gpu", std::to_string(gpu.index)},
                         {"UUID", gpu.uuid}};
  int32_t minor = gpu.index;
  if (i < input.places.size()) {
    labels.emplace_back("pci_bus_id", input.places[i].pci_bus_id);
    if (input.places[i].minor >= 0) minor = input.places[i].minor;
  }
  labels.emplace_back("device", "nvidia" + std::to_string(minor));
  labels.emplace_back("modelName", gpu.model);
  // dcgm-exporter renamed it: dashboards of both times find theirs.
  labels.emplace_back("Hostname", input.hostname);
  labels.emplace_back("hostname", input.hostname);
  if (!input.driver_version.empty()) {
    labels.emplace_back("DCGM_FI_DRIVER_VERSION", input.driver_version);
  }
  if (const auto holder = input.holders.find(gpu.index);
      holder != input.holders.end()) {
    labels.emplace_back("hpc_job", holder->second.job);
  }
  return labels;
}

void CollectDcgmReading(const GpuReading& reading, const MetricLabels& labels,
                        MetricFamilies* out) {
  for (const DcgmRow& row : kDcgmRows) {
    const auto& value = reading.Get(row.value);
    // Its memory and percent values are whole numbers.
    if (!value) continue;
    const double scaled = *value * row.scale;
    out->Add(
        row.type, row.name, row.help,
        row.scale == kMib || row.scale == 100 ? std::round(scaled) : scaled,
        labels);
  }
  // In KiB, both directions together.
  const auto& sent = reading.Get(GpuValue::kNvlinkTransmit);
  const auto& received = reading.Get(GpuValue::kNvlinkReceive);
  if (sent && received) {
    out->Counter("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
                 "Total number of NVLink bandwidth counters for all lanes.",
                 (*sent + *received) / 1024, labels);
  }
  if (!reading.throttled) return;
  const auto seconds = [&](GpuThrottle t) {
    return reading.throttled_seconds[static_cast<size_t>(t)];
  };
  out->Counter("DCGM_FI_DEV_POWER_VIOLATION",
               "Throttling duration due to power constraints (in ns).",
               seconds(GpuThrottle::kPowerCap) * 1e9, labels);
  out->Counter(
      "DCGM_FI_DEV_THERMAL_VIOLATION",
      "Throttling duration due to thermal constraints (in ns).",
      (seconds(GpuThrottle::kSwThermal) + seconds(GpuThrottle::kHwThermal)) *
          1e9,
      labels);
}

}  // namespace

void CollectGpus(const GpuPageInput& input, MetricFamilies* out) {
  if (input.gpus.empty()) return;
  out->Gauge("lockstep_gpu_driver_info",
             "Always 1; the label names the driver version.", 1,
             {{"version", input.driver_version}});
  out->Gauge(
      "lockstep_gpu_sampler_age_seconds",
      "Time since the last GPU reading. It grows while the driver hangs.",
      ToSeconds(input.status.age));
  out->Counter("lockstep_gpu_samples_total", "Number of GPU readings.",
               static_cast<double>(input.status.samples));
  out->Counter("lockstep_gpu_sample_seconds_total",
               "Time spent reading the GPUs.", input.status.read_seconds);
  for (size_t i = 0; i < input.gpus.size(); ++i) {
    const Gpu& gpu = input.gpus[i];
    const MetricLabels labels = LabelsOf(gpu);
    const GpuReading* reading = ReadingOf(input, i);
    const auto holder = input.holders.find(gpu.index);
    const bool held = holder != input.holders.end();
    out->Gauge("lockstep_gpu_up",
               "1 while the GPU answers, 0 when it is lost or its driver "
               "hangs.",
               reading != nullptr && reading->up ? 1 : 0, labels);
    out->Gauge("lockstep_gpu_allocated", "1 while a job holds the GPU.",
               held ? 1 : 0, labels);
    if (held) {
      out->Gauge("lockstep_gpu_allocation",
                 "Always 1; the labels name the rank that holds the GPU.", 1,
                 {{"gpu", std::to_string(gpu.index)},
                  {"job_id", holder->second.job},
                  {"rank", std::to_string(holder->second.rank)}});
    }
    if (reading != nullptr) CollectReading(*reading, labels, out);
    for (size_t x = 0; i < input.status.xids.size() && x < kXidClasses; ++x) {
      out->Counter("lockstep_gpu_xid_errors_total",
                   "Errors that the driver reported, by Xid, since this daemon "
                   "started.",
                   static_cast<double>(input.status.xids[i].counts[x]),
                   With(labels, "xid", XidClassName(x)));
    }
  }
}

void CollectDcgm(const GpuPageInput& input, MetricFamilies* out) {
  for (size_t i = 0; i < input.gpus.size(); ++i) {
    const MetricLabels labels = DcgmLabels(input, i);
    if (const GpuReading* reading = ReadingOf(input, i)) {
      CollectDcgmReading(*reading, labels, out);
    }
    if (i >= input.status.xids.size()) continue;
    const GpuXids& xids = input.status.xids[i];
    out->Gauge("DCGM_FI_DEV_XID_ERRORS",
               "Value of the last XID error encountered.",
               static_cast<double>(xids.last()), labels);
    for (size_t x = 0; x < kXidClasses; ++x) {
      if (xids.counts[x] == 0) continue;  // As dcgm-exporter does.
      out->Gauge("DCGM_EXP_XID_ERRORS_COUNT", "Count of XID errors.",
                 static_cast<double>(xids.counts[x]),
                 With(labels, "xid", XidClassName(x)));
    }
  }
}

}  // namespace lockstep::worker::agent
