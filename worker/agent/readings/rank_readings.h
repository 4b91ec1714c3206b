// What ranks' pages, exit records and GPUs say, in the model's words. Pure.
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

namespace lockstep {

// The page of another generation gives nothing (the default). Every number is
// finite and within what the coordinator takes.
RankProgress ToProgress(const task::RankPage& page, Generation generation);

ExitStatus ToExitStatus(const task::ExitRecord& record);

// Final use, from the record; `sampled` holds what was measured meanwhile.
Usage ToUsage(const task::ExitRecord& record, const Usage& sampled);

// The most cores in use over a period between two readings.
class CpuPeak {
 public:
  // `cpu_seconds` so far, of the whole process tree. A reading that comes too
  // soon after the last one for the clock's grain is passed over.
  void Add(MonoTime now, double cpu_seconds);
  std::optional<double> cores() const { return cores_; }

 private:
  std::optional<MonoTime> last_;
  double last_seconds_ = 0;
  std::optional<double> cores_;
};

// What the GPUs of a rank do together: the mean of their utilization, the sum
// of their memory. Absent: no reading.
struct GpuSetUse {
  std::optional<double> utilization;
  std::optional<int64_t> memory_bytes;
};
GpuSetUse UseOfGpus(const std::vector<GpuUsage>& readings,
                    const std::vector<int32_t>& indices);

// `*to` becomes the larger one; what is absent says nothing.
template <typename T>
void Raise(const std::optional<T>& value, std::optional<T>* to) {
  if (value && (!*to || **to < *value)) *to = value;
}

// Of the GPUs `offered`, in their order; those that `readings` (of all GPUs of
// the host, perhaps none) lacks have no values. Within what the coordinator
// takes.
std::vector<GpuUsage> ToGpuUsage(const std::vector<Gpu>& offered,
                                 const std::vector<GpuReading>& readings);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_RANK_READINGS_H_
