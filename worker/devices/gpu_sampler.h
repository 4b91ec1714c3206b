// Reads the GPUs periodically on threads of its own, so a slow or hanging
// driver blocks no other thread.
//
// One thread opens the driver and reads, another waits for Xid events. Each
// finished reading replaces the last one; Latest never waits for the driver.
// While the driver hangs, the last reading ages and is then no longer returned.
// Safe from any thread.
#ifndef LOCKSTEP_WORKER_DEVICES_GPU_SAMPLER_H_
#define LOCKSTEP_WORKER_DEVICES_GPU_SAMPLER_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/resources.h"
#include "worker/devices/gpu_reading.h"
#include "worker/devices/nvml.h"

namespace lockstep::worker::devices {

struct GpuSamplerOptions {
  std::string library = Nvml::kLibrary;
  // Time from the start of a reading to the next start. At least 10 ms.
  Duration period = std::chrono::seconds(1);
  // A reading older than this and than five periods is discarded.
  Duration stale_after = std::chrono::seconds(10);
  // Without a persistence daemon a driver needs seconds per GPU.
  Duration open_within = std::chrono::seconds(60);
  // Time for a hanging driver at destruction.
  Duration close_within = std::chrono::seconds(2);
};

// Snapshot of the GPUs.
struct GpuStatus {
  // In the order of GpuSampler::gpus(); empty without a fresh reading.
  std::vector<GpuReading> readings;
  // Age of the newest reading, or time since the start without one.
  Duration age{};
  // When the newest reading began.
  MonoTime begun;
  uint64_t samples = 0;     // Finished so far.
  double read_seconds = 0;  // That they took, all together.
  // Since the start, in the order of gpus(); empty if this driver has no
  // events.
  std::vector<GpuXids> xids;
};

class GpuSampler {
 public:
  // Opens the driver and returns when the GPUs are known. NotFound: this host
  // has no driver. Unavailable: the driver does not answer. DeadlineExceeded:
  // the driver did not return in time.
  static StatusOr<std::unique_ptr<GpuSampler>> Open(GpuSamplerOptions options);
  // Waits for the threads at most close_within; a thread that hangs in the
  // driver is abandoned with the driver's library.
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  const std::vector<Gpu>& gpus() const;
  const std::vector<GpuPlace>& places() const;
  const std::string& driver_version() const;

  GpuStatus Latest(MonoTime now) const;
  // Asks for a reading that begins now, or when the present one has ended.
  // Does not wait for it.
  void ReadSoon() const;

 private:
  struct State;
  explicit GpuSampler(std::shared_ptr<State> state);

  // Shared with the threads, which may outlive this object.
  const std::shared_ptr<State> state_;
};

// Returns null if there is no driver. If the driver does not answer, logs a
// warning and returns null.
std::unique_ptr<GpuSampler> OpenGpusIfThere(const GpuSamplerOptions& options);

}  // namespace lockstep::worker::devices

#endif  // LOCKSTEP_WORKER_DEVICES_GPU_SAMPLER_H_
