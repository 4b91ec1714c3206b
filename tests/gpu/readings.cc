// gpu_readings: what the worker daemon reads of the GPUs, as JSON, for a
// comparison with nvidia-smi.
//
//   gpu_readings [LIBRARY]
//
// LIBRARY takes the place of the driver's libnvidia-ml.so.1. Memory is in
// bytes, power in W, temperatures in C, clocks in Hz, utilization 0 to 1. A
// reading that the GPU does not have is left out. Exits with 77 where there is
// no driver.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "worker/devices/nvml.h"

namespace lockstep::worker::devices {
namespace {

constexpr int kExitNoDriver = 77;

constexpr std::pair<GpuValue, const char*> kCompared[] = {
    {GpuValue::kUtilization, "utilization"},
    {GpuValue::kMemoryAccess, "memory_access"},
    {GpuValue::kMemoryUsed, "memory_used"},
    {GpuValue::kMemoryFree, "memory_free"},
    {GpuValue::kMemoryReserved, "memory_reserved"},
    {GpuValue::kMemoryTotal, "memory_total"},
    {GpuValue::kPower, "power"},
    {GpuValue::kPowerLimit, "power_limit"},
    {GpuValue::kTemperatureCore, "temperature_core"},
    {GpuValue::kTemperatureMemory, "temperature_memory"},
    {GpuValue::kClockSm, "clock_sm"},
    {GpuValue::kClockMemory, "clock_memory"},
    {GpuValue::kClockMaxSm, "clock_max_sm"},
    {GpuValue::kClockMaxMemory, "clock_max_memory"},
    {GpuValue::kPcieLinkGeneration, "pcie_generation"},
    {GpuValue::kPcieLinkWidth, "pcie_width"},
    {GpuValue::kEccCorrectedVolatile, "ecc_corrected_volatile"},
    {GpuValue::kEccUncorrectedVolatile, "ecc_uncorrected_volatile"},
    {GpuValue::kEccCorrectedAggregate, "ecc_corrected_aggregate"},
    {GpuValue::kEccUncorrectedAggregate, "ecc_uncorrected_aggregate"},
};

nlohmann::json GpuJson(const Nvml& nvml, size_t i) {
  const Gpu& gpu = nvml.gpus()[i];
  const GpuReading reading = nvml.Read(i, /*slow=*/false);
  nlohmann::json values = nlohmann::json::object();
  for (const auto& [value, name] : kCompared) {
    if (const auto& number = reading.Get(value)) values[name] = *number;
  }
  return {{"index", gpu.index},     {"uuid", gpu.uuid},
          {"name", gpu.model},      {"pci_bus_id", nvml.places()[i].pci_bus_id},
          {"error", reading.error}, {"values", values}};
}

int Main(const std::string& library) {
  const auto nvml = Nvml::Open(library);
  if (!nvml.ok()) {
    fmt::print(stderr, "gpu_readings: {}\n", Message(nvml.status()));
    return nvml.status().code() == StatusCode::kNotFound ? kExitNoDriver : 1;
  }
  nlohmann::json gpus = nlohmann::json::array();
  for (size_t i = 0; i < (*nvml)->gpus().size(); ++i) {
    gpus.push_back(GpuJson(**nvml, i));
  }
  const nlohmann::json document = {{"driver", (*nvml)->driver_version()},
                                   {"gpus", gpus}};
  fmt::print("{}\n", document.dump(2));
  return 0;
}

}  // namespace
}  // namespace lockstep::worker::devices

int main(int argc, char** argv) {
  return lockstep::worker::devices::Main(
      argc > 1 ? argv[1] : lockstep::worker::devices::Nvml::kLibrary);
}
