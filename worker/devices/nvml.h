// NVIDIA GPUs, by the driver's own library.
//
// libnvidia-ml.so.1 comes with the driver and is opened at run time: a host
// without it has no GPUs, and that is no error. Only the functions in nvml.cc
// are used, by the numbers and layouts of NVIDIA's published NVML API
// reference (they are stable: the _v2 names never change meaning).
//
// Safe from any thread after Open. Never touches CUDA.
#ifndef LOCKSTEP_WORKER_DEVICES_NVML_H_
#define LOCKSTEP_WORKER_DEVICES_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/resources.h"

namespace lockstep {

// A reading that this GPU or driver does not offer is absent.
struct GpuReading {
  int32_t index = 0;
  // Part of the last sample period in which a kernel ran, and in which memory
  // was read or written; 0..1.
  std::optional<double> utilization;
  std::optional<double> memory_access;
  std::optional<int64_t> memory_used_bytes;
  std::optional<int64_t> memory_total_bytes;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
};

class Nvml {
 public:
  inline static constexpr char kLibrary[] = "libnvidia-ml.so.1";

  // NotFound: there is no driver on this host. Unavailable: there is one and
  // it does not answer (the driver's own words).
  static StatusOr<std::unique_ptr<Nvml>> Open(
      const std::string& library = kLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::vector<Gpu>& gpus() const { return gpus_; }
  // One per GPU, in the order of gpus().
  std::vector<GpuReading> Read() const;

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<Functions> functions);
  Status FindGpus();

  void* const library_;
  const std::unique_ptr<Functions> functions_;
  std::vector<void*> devices_;
  std::vector<Gpu> gpus_;
};

// "libnvidia-ml.so.1" gives the GPUs of this host; none where there is no
// driver. A driver that does not answer is a warning in the log, and no GPUs.
std::unique_ptr<Nvml> OpenNvmlIfThere(const std::string& library);

// The GPUs that a daemon offers: those that `visible` names (its own
// CUDA_VISIBLE_DEVICES: indices or UUIDs; absent: all), and of them the first
// `most` (absent: all). Pure.
std::vector<Gpu> SelectGpus(const std::vector<Gpu>& gpus,
                            const std::optional<std::string>& visible,
                            std::optional<int32_t> most);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_DEVICES_NVML_H_
