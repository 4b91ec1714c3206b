// The performance counters of a GPU for the time between two readings: NVML's
// GPM, of Hopper and newer.
//
// Thread-compatible. Any call may block, forever if the driver hangs.
#ifndef LOCKSTEP_WORKER_DEVICES_NVML_GPM_H_
#define LOCKSTEP_WORKER_DEVICES_NVML_GPM_H_

#include <array>
#include <iterator>
#include <memory>
#include <optional>

#include "common/base/clock.h"
#include "worker/devices/gpu_reading.h"
#include "worker/devices/nvml_functions.h"

namespace lockstep::worker::devices {

class NvmlGpm {
 public:
  // Null if the driver or the GPU has none, or does not let this process see
  // them. `functions` outlives the object.
  static std::unique_ptr<NvmlGpm> Open(const nvml::Functions& functions,
                                       nvml::Device device);
  ~NvmlGpm();
  NvmlGpm(const NvmlGpm&) = delete;
  NvmlGpm& operator=(const NvmlGpm&) = delete;

  // Sets the values of the time since the last sample. Less than 100 ms after
  // it they are the last ones. None before the second sample.
  void Read(MonoTime now, GpuReading* reading);

 private:
  NvmlGpm(const nvml::Functions& functions, nvml::Device device)
      : functions_(functions), device_(device) {}
  // Takes the values between the last sample and the next.
  void Measure();

  const nvml::Functions& functions_;
  const nvml::Device device_;
  nvml::GpmSample last_ = nullptr;
  nvml::GpmSample next_ = nullptr;
  // Of `last_`; absent: it has no sample yet.
  std::optional<MonoTime> sampled_;
  std::array<std::optional<double>, std::size(nvml::kGpmRows)> values_{};
};

}  // namespace lockstep::worker::devices

#endif  // LOCKSTEP_WORKER_DEVICES_NVML_GPM_H_
