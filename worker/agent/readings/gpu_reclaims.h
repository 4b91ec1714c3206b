// Tells which GPUs are not free although the rank that held them has ended. A
// process in an uninterruptible wait keeps its memory of the GPU, and so does
// one that outlived its rank.
//
// A GPU is free when its memory is back at its baseline, the least that was
// used while no rank held it, and when it has no compute process that it had
// not before the rank. Pure: no I/O and no clock.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_GPU_RECLAIMS_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_GPU_RECLAIMS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/node.h"
#include "worker/devices/gpu_reading.h"

namespace lockstep::worker::agent {

class GpuReclaims {
 public:
  // A driver's own bookkeeping may grow by so much.
  static constexpr int64_t kSlack = int64_t{256} << 20;

  // By UUID, in bytes.
  using Baselines = std::map<std::string, int64_t>;

  // `baselines` are those of an earlier daemon since the host's boot. A GPU
  // that has one counts as just released.
  explicit GpuReclaims(Baselines baselines = {})
      : baselines_(std::move(baselines)) {}

  // Records which GPUs ranks hold, by index, and for which jobs. Returns true
  // if one was released, so a reading is due.
  bool Hold(const std::map<int32_t, JobName>& held, Time now);
  // Judges the offered GPUs by readings that began at `begun`. Returns true if
  // a baseline changed.
  bool Take(const std::vector<Gpu>& offered,
            const std::vector<devices::GpuReading>& readings, MonoTime begun,
            Time now);

  // Whether one of the GPUs was released and no reading has begun since.
  bool Awaits(const std::set<int32_t>& gpus) const;
  // Of the processes only pid, memory and `since` are known here.
  std::vector<GpuReclaim> All() const;
  const Baselines& baselines() const { return baselines_; }

 private:
  struct Use {
    bool held = false;
    // Of the last rank.
    JobName job;
    // Set from a rank's end until the GPU is free.
    std::optional<Time> released;
    bool judged = false;
    // Compute processes that it had while it was free. Absent: unknown.
    std::optional<std::set<int64_t>> own;
    // When each of the others was first seen after the rank's end.
    std::map<int64_t, WallTime> others;
    GpuReclaim reclaim;
  };

  bool TakeOne(const Gpu& gpu, const devices::GpuReading& reading,
               MonoTime begun, Time now);

  Baselines baselines_;
  // By index.
  std::map<int32_t, Use> uses_;
};

// The lines "UUID BYTES" after the line of the host's boot. Empty if `text` is
// of another boot or malformed.
GpuReclaims::Baselines ParseBaselines(const std::string& text,
                                      const std::string& boot_id);
std::string FormatBaselines(const GpuReclaims::Baselines& baselines,
                            const std::string& boot_id);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_GPU_RECLAIMS_H_
