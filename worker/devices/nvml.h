// NVIDIA GPUs, through the driver's own library.
//
// libnvidia-ml.so.1 is part of the driver and is opened at run time: a host
// without it has no GPUs, which is not an error. Only functions in nvml_api.h
// are used. Each reading is optional: its value is absent if the driver lacks
// the function or the GPU does not support it.
//
// Safe from any thread after Open, but for Read, which one thread calls. Any
// call may block, forever if the driver hangs: GpuSampler calls from threads of
// its own. Never uses CUDA.
#ifndef LOCKSTEP_WORKER_DEVICES_NVML_H_
#define LOCKSTEP_WORKER_DEVICES_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/resources.h"
#include "worker/devices/gpu_reading.h"

namespace lockstep::worker::devices {

namespace nvml {
struct Functions;
}
class NvmlGpm;

// Values for DCGM's labels beyond Gpu.
struct GpuPlace {
  std::string pci_bus_id;  // "00000000:3B:00.0"; empty: not known.
  int32_t minor = -1;      // N of /dev/nvidiaN; -1: not known.
};

class Nvml {
 public:
  inline static constexpr char kLibrary[] = "libnvidia-ml.so.1";

  // NotFound: this host has no driver. Unavailable: the driver does not answer;
  // the message is the driver's. A GPU that does not answer is skipped with a
  // warning.
  static StatusOr<std::unique_ptr<Nvml>> Open(
      const std::string& library = kLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::vector<Gpu>& gpus() const { return gpus_; }
  // In the order of gpus().
  const std::vector<GpuPlace>& places() const { return places_; }
  // Empty: unknown.
  const std::string& driver_version() const { return driver_version_; }

  // Reads gpus()[i]. `slow` includes the PCIe throughput, which takes 40 ms,
  // and the number of NVLinks. The first reading lacks the values that are
  // measured between two of them.
  GpuReading Read(size_t i, bool slow) const;

  // ---- Xid events; one thread ----------------------------------------------
  // Unavailable: this driver or these GPUs have none.
  Status OpenEvents();
  struct Xid {
    size_t gpu = 0;  // Of gpus().
    uint64_t number = 0;
  };
  // Waits for the next event at most `milliseconds`; nullopt if none came.
  // Unavailable: the driver refuses, retry later. REQUIRES: OpenEvents was OK.
  StatusOr<std::optional<Xid>> WaitForXid(unsigned milliseconds);

 private:
  Nvml(void* library, std::unique_ptr<nvml::Functions> functions);
  Status FindGpus();
  Status AddGpu(unsigned index);
  void ReadMemory(void* device, GpuReading* reading) const;
  void ReadNumbers(void* device, bool slow, GpuReading* reading) const;
  void ReadHealth(void* device, GpuReading* reading) const;
  void ReadFields(void* device, GpuReading* reading) const;
  void ReadProcesses(void* device, GpuReading* reading) const;
  void ReadNvlinks(void* device, GpuReading* reading) const;

  void* const library_;
  const std::unique_ptr<nvml::Functions> functions_;
  std::vector<void*> devices_;
  // In the order of devices_; null: it has none.
  std::vector<std::unique_ptr<NvmlGpm>> gpms_;
  std::vector<Gpu> gpus_;
  std::vector<GpuPlace> places_;
  std::string driver_version_;
  void* events_ = nullptr;
};

// Returns the GPUs that a daemon offers: those in `visible` (its own
// CUDA_VISIBLE_DEVICES: indices or UUIDs; absent: all), limited to the first
// `most` (absent: all). Pure.
std::vector<Gpu> SelectGpus(const std::vector<Gpu>& gpus,
                            const std::optional<std::string>& visible,
                            std::optional<int32_t> most);

}  // namespace lockstep::worker::devices

#endif  // LOCKSTEP_WORKER_DEVICES_NVML_H_
