// Converts rank pages, exit records and GPU readings to model values. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_RANK_READINGS_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_RANK_READINGS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/job.h"
#include "common/model/node.h"
#include "worker/devices/gpu_reading.h"
#include "worker/task/exit_record.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::agent {

// The page of another generation gives the default. All numbers are finite and
// within the coordinator's limits. CollectiveWait::responsive is left false.
RankProgress ToProgress(const task::RankPage& page, Generation generation);

ExitStatus ToExitStatus(const task::ExitRecord& record);

// Final use, from the record; `sampled` has the measurements until then.
Usage ToUsage(const task::ExitRecord& record, const Usage& sampled);

// Whether a rank's process still says something (task::RankWait::beat).
class BeatWatch {
 public:
  // A process that runs says something once a second.
  static constexpr Duration kSilence = std::chrono::seconds(3);

  // Call it at each look; returns whether the process is responsive. Where the
  // looks are far apart, this daemon was stopped, and the process counts as
  // responsive.
  bool Take(uint64_t beat, MonoTime now);

 private:
  uint64_t beat_ = 0;
  MonoTime changed_;
  std::optional<MonoTime> looked_;
};

// Largest number of cores in use between two readings.
class CpuPeak {
 public:
  // `cpu_seconds` is the total of the whole process tree. Skips a reading that
  // follows the last one too closely for the clock's resolution.
  void Add(MonoTime now, double cpu_seconds);
  std::optional<double> cores() const { return cores_; }

 private:
  std::optional<MonoTime> last_;
  double last_seconds_ = 0;
  std::optional<double> cores_;
};

// Combined use of a rank's GPUs: mean utilization and total memory. Absent
// without a reading.
struct GpuSetUse {
  std::optional<double> utilization;
  std::optional<int64_t> memory_bytes;
};
GpuSetUse UseOfGpus(const std::vector<GpuUsage>& readings,
                    const std::vector<int32_t>& indices);

// Raises `*to` to the larger value; an absent value changes nothing.
template <typename T>
void Raise(const std::optional<T>& value, std::optional<T>* to) {
  if (value && (!*to || **to < *value)) *to = value;
}

// Returns the usage of the GPUs `offered`, in their order, within the
// coordinator's limits. A GPU that `readings` lacks has no values.
std::vector<GpuUsage> ToGpuUsage(
    const std::vector<Gpu>& offered,
    const std::vector<devices::GpuReading>& readings);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_RANK_READINGS_H_
