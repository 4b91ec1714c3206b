// Samples the resource use and progress of each rank: its page, process tree,
// network, cgroup and GPUs, and of programs the signs of progress. What users'
// sessions use is not the rank's, except in containers.
//
// Belongs to the event loop's thread. Reads /proc, cgroupfs and the ranks'
// pages.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_RANK_SAMPLER_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_RANK_SAMPLER_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/model/node.h"
#include "common/os/procfs.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/cgroup_tree.h"
#include "worker/agent/host/task_cgroup.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/metrics/task_reading.h"
#include "worker/agent/readings/output_watch.h"
#include "worker/agent/readings/rank_network.h"
#include "worker/agent/readings/rank_readings.h"
#include "worker/agent/readings/rank_signs.h"
#include "worker/agent/readings/session_cpu.h"
#include "worker/agent/store/rank_table.h"
#include "worker/task/exit_record.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::agent {

class RankSampler {
 public:
  // Pointers are borrowed. `shim_of` returns the process whose tree contains
  // the rank; absent if unknown. `has_left` returns whether the process that
  // wrote the rank's page has ended before its rank, as a program's may.
  // `first_sign`: how long a program may show none before its first.
  RankSampler(EventLoop* loop, FileSystem* files, RankTable* table,
              std::function<std::optional<pid_t>(const RankRef& ref)> shim_of,
              std::function<bool(const RankRef& ref)> has_left,
              Duration first_sign);

  const RankProgress& ProgressOf(const RankRef& ref) {
    return ranks_[ref].progress;
  }
  const Usage& UsageOf(const RankRef& ref) { return ranks_[ref].usage; }
  // Adds the rank's readings to `reading`.
  void AddTo(const RankRef& ref, TaskReading* reading) const;

  // Takes the readings of an earlier daemon.
  void Adopt(const RankRef& ref, const RankProgress& progress,
             const Usage& usage);
  // Sets the path of the rank's cgroup; otherwise OwnCgroup finds it.
  void SetCgroup(const RankRef& ref, const std::string& path) {
    ranks_[ref].cgroup = path;
  }
  // The rank restarts: all values begin at 0, except bytes and the last reading
  // of its cgroup.
  void Restart(const RankRef& ref);
  void Erase(const RankRef& ref) {
    ranks_.erase(ref);
    network_.Erase(ref);
    outputs_.Forget(ref);
  }

  // Reads the rank's page for its progress, and judges the signs of a program's
  // rank. `last` is set if its writer has ended.
  void ReadPage(const RankRef& ref, bool last);
  // Reads all ranks that have not ended.
  void Sample();
  // `gpus` are the newest readings of this node's GPUs.
  void SampleGpus(const std::vector<GpuUsage>& gpus);
  // The rank has ended; its resource use is final.
  void TakeExit(const RankRef& ref, const task::ExitRecord& record);
  void TakeCgroup(const RankRef& ref, const CgroupReading& reading);

 private:
  struct Sampled {
    std::unique_ptr<task::PageReader> page;
    RankProgress progress;
    uint64_t beat = 0;
    BeatWatch beats;
    // Of the page's last change, as the rank read the clock.
    int64_t changed_nanos = 0;
    WallTime changed{};
    std::optional<task::RankCounters> counters;
    CpuPeak cpu_peak;
    // Absent: not searched yet; without content: the rank has no own cgroup.
    std::optional<std::optional<std::string>> cgroup;
    std::optional<TaskCgroupReading> cgroup_reading;
    Usage usage;
    // Its processes are not below its shim. Absent: not known yet.
    std::optional<bool> elsewhere;
    SessionCpu sessions;
    double session_cpu_seconds = 0;
    uint64_t read_bytes = 0;
    uint64_t write_bytes = 0;
    // Sum and number of readings of the GPUs' utilization, for its mean.
    double gpu_sum = 0;
    int64_t gpu_samples = 0;
    int32_t living = 0;  // processes at the last sample
    std::optional<double> gpu_utilization;
    // Of programs that have not ended.
    std::unique_ptr<RankSigns> signs;
    // Content of the file RankPaths::processes.
    std::string processes;
  };

  void ReadProgress(const RankRef& ref, bool last);
  void ReadPageFile(const RankRef& ref, bool last);
  void SampleTree(const RankRef& ref, const std::vector<ProcessStat>& all);
  void TakeChange(const task::RankProgress& page, Sampled* rank);
  // Null for a native rank.
  RankSigns* SignsOf(const RankRef& ref);
  void LookForSigns(const RankRef& ref, const Rank& rank);

  EventLoop* const loop_;
  FileSystem* const files_;
  RankTable* const table_;
  const std::function<std::optional<pid_t>(const RankRef&)> shim_of_;
  const std::function<bool(const RankRef&)> has_left_;
  const Duration first_sign_;
  std::map<RankRef, Sampled> ranks_;
  RankNetwork network_;
  OutputWatch outputs_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_RANK_SAMPLER_H_
