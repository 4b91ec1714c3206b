#include "worker/agent/metrics/agent_metrics.h"

#include <algorithm>
#include <utility>

#include "worker/agent/metrics/metric_families.h"

namespace lockstep::worker::agent {
namespace {

// More devices of a kind than any host for training has: beyond, none is
// shown.
constexpr size_t kMostDevices = 16;

void CollectCpu(const CpuSeconds& c, MetricFamilies* out) {
  const std::pair<const char*, double> modes[] = {
      {"user", c.user},       {"nice", c.nice},     {"system", c.system},
      {"idle", c.idle},       {"iowait", c.iowait}, {"irq", c.irq},
      {"softirq", c.softirq}, {"steal", c.steal}};
  for (const auto& [mode, seconds] : modes) {
    out->Counter("lockstep_host_cpu_seconds_total",
                 "CPU time of this host by mode.", seconds, {{"mode", mode}});
  }
}

// Both directions of one device.
void Pair(const std::string& name, const std::string& help,
          const std::string& device, const char* in, uint64_t in_bytes,
          const char* out_name, uint64_t out_bytes, MetricFamilies* out) {
  out->Counter(name, help, AsDouble(in_bytes),
               {{"device", device}, {"direction", in}});
  out->Counter(name, help, AsDouble(out_bytes),
               {{"device", device}, {"direction", out_name}});
}

void CollectDevices(const devices::HostReadings& host, MetricFamilies* out) {
  size_t shown = 0;
  for (const auto& [device, n] : host.base.network) {
    if (!devices::IsHostNetworkDevice(device) || shown++ >= kMostDevices)
      continue;
    Pair("lockstep_host_network_bytes_total",
         "Bytes by network device and direction.", device, "receive",
         n.receive_bytes, "transmit", n.transmit_bytes, out);
  }
  shown = 0;
  for (const auto& [device, disk] : host.disks) {
    if (shown++ >= kMostDevices) break;
    Pair("lockstep_host_disk_bytes_total", "Bytes by disk and direction.",
         device, "read", disk.read_bytes, "write", disk.written_bytes, out);
  }
  shown = 0;
  for (const auto& [port, bytes] : host.infiniband) {
    if (shown++ >= kMostDevices) break;
    Pair("lockstep_host_infiniband_bytes_total",
         "Bytes by InfiniBand port and direction.", port, "receive",
         bytes.receive_bytes, "transmit", bytes.transmit_bytes, out);
  }
}

void CollectHost(const devices::HostReadings& host, MetricFamilies* out) {
  CollectCpu(host.base.cpu, out);
  out->Gauge("lockstep_host_load1", "Load average over one minute.",
             host.base.load.one);
  out->Gauge("lockstep_host_memory_total_bytes", "Memory of this host.",
             AsDouble(host.base.memory.total));
  out->Gauge("lockstep_host_memory_available_bytes",
             "Memory available to programs.",
             AsDouble(host.base.memory.available));
  CollectDevices(host, out);
  for (const auto& [resource, seconds] : host.pressure) {
    out->Counter("lockstep_host_pressure_waiting_seconds_total",
                 "Pressure stall time of at least one task, by resource.",
                 seconds, {{"resource", resource}});
  }
  if (host.oom_kills) {
    out->Counter("lockstep_host_oom_kills_total",
                 "Processes that the OOM killer killed since boot.",
                 AsDouble(*host.oom_kills));
  }
}

void CollectTask(const TaskReading& task, MetricFamilies* out) {
  const MetricLabels labels = {{"job_id", task.job},
                               {"role", task.role},
                               {"index", std::to_string(task.index)},
                               {"rank", std::to_string(task.rank)}};
  out->Counter("lockstep_task_cpu_seconds_total",
               "CPU time of a rank and its children.", task.cpu_seconds,
               labels);
  out->Gauge("lockstep_task_processes", "Processes of a rank.", task.processes,
             labels);
  out->Gauge("lockstep_task_memory_bytes",
             "Resident memory of a rank and its children.",
             static_cast<double>(task.memory_bytes), labels);
  out->Gauge("lockstep_task_memory_peak_bytes",
             "Highest observed resident memory.",
             static_cast<double>(task.memory_peak_bytes), labels);
  MetricLabels io = labels;
  io.emplace_back("direction", "read");
  const std::string io_help =
      "Bytes read from and written to storage, by direction.";
  out->Counter("lockstep_task_io_bytes_total", io_help,
               AsDouble(task.read_bytes), io);
  io.back().second = "write";
  out->Counter("lockstep_task_io_bytes_total", io_help,
               AsDouble(task.write_bytes), io);
  if (task.network_sent_bytes && task.network_received_bytes) {
    const std::string help =
        "Payload of the TCP connections of a rank and its children, by "
        "direction.";
    io.back().second = "sent";
    out->Counter("lockstep_task_network_bytes_total", help,
                 static_cast<double>(*task.network_sent_bytes), io);
    io.back().second = "received";
    out->Counter("lockstep_task_network_bytes_total", help,
                 static_cast<double>(*task.network_received_bytes), io);
  }
  out->Counter("lockstep_task_restarts_total", "Earlier attempts of the job.",
               task.restarts, labels);
  out->Counter("lockstep_task_log_bytes_total",
               "Bytes of a rank's log sent to the coordinator.",
               AsDouble(task.log.sent_bytes), labels);
  out->Counter("lockstep_task_log_dropped_total", "Gaps in a rank's log.",
               AsDouble(task.log.gaps), labels);
  out->Counter("lockstep_task_log_dropped_bytes_total",
               "Bytes dropped from a rank's log.",
               AsDouble(task.log.dropped_bytes), labels);
  if (!task.cgroup) return;
  out->Counter("lockstep_task_oom_kills_total",
               "Processes of a rank that the OOM killer killed.",
               AsDouble(task.cgroup->oom_kills), labels);
  out->Counter("lockstep_task_throttled_seconds_total",
               "Time in which the CPU limit throttled a rank.",
               task.cgroup->throttled_seconds, labels);
}

// Label values in the order of task::RankPhase. Waiting and stalled are
// separate from working.
constexpr const char* kPhaseNames[] = {
    "input_wait",     "compute",   "allreduce",
    "straggler_wait", "optimizer", "checkpoint_stall",
    "evaluation",     "other",     "compile"};
static_assert(std::size(kPhaseNames) == task::kTimedPhases);

constexpr char kAllReduceSeconds[] =
    "Time in which reductions ran (busy) and in which a rank waited for them "
    "(exposed).";

void CollectSteps(const TaskReading& task, MetricFamilies* out) {
  if (!task.counters) return;
  const task::RankCounters& c = *task.counters;
  const MetricLabels labels = {{"job_id", task.job},
                               {"rank", std::to_string(task.rank)}};
  MetricLabels one = labels;
  one.emplace_back("phase", "");
  for (size_t i = 0; i < task::kTimedPhases; ++i) {
    one.back().second = kPhaseNames[i];
    out->Counter("lockstep_step_phase_seconds_total",
                 "Time of a rank by phase; the phases add up to its wall time.",
                 c.phase_seconds[i], one);
  }
  one.back() = {"kind", "exposed"};
  out->Counter(
      "lockstep_allreduce_seconds_total", kAllReduceSeconds,
      c.phase_seconds[static_cast<size_t>(task::RankPhase::kAllReduce)], one);
  one.back() = {"kind", "busy"};
  out->Counter("lockstep_allreduce_seconds_total", kAllReduceSeconds,
               c.allreduce_busy_seconds, one);
  out->Counter("lockstep_allreduce_bytes_total", "Bytes reduced.",
               AsDouble(c.allreduce_bytes), labels);
  out->Counter("lockstep_allreduce_buckets_total",
               "Reductions of gradient buckets and of small values.",
               AsDouble(c.collectives), labels);
  out->Counter("lockstep_rank_steps_total", "Committed steps.",
               AsDouble(c.steps_committed), labels);
  out->Counter("lockstep_rank_steps_skipped_total",
               "Steps skipped because a gradient was not finite.",
               AsDouble(c.steps_skipped), labels);
  out->Counter("lockstep_input_records_total", "Samples trained on.",
               AsDouble(c.samples), labels);
  out->Counter("lockstep_rank_checkpoints_total",
               "Checkpoints in which a rank took part.",
               AsDouble(c.checkpoints_saved), labels);
  out->Gauge(
      "lockstep_straggler_lag_seconds",
      "Mean delay of a rank behind the median rank, over about twenty steps.",
      c.straggler_lag_seconds, labels);
  if (c.communication.late_rank >= 0) {
    out->Gauge("lockstep_late_rank",
               "Last rank to reach the reductions of the newest step.",
               c.communication.late_rank, labels);
    out->Gauge("lockstep_late_rank_wait_seconds",
               "Time that this rank waited for late_rank in the newest step.",
               c.communication.late_waited_seconds, labels);
  }
  one.back() = {"late_rank", ""};
  for (const task::LateRankReading& late : c.communication.longest_waits) {
    if (late.rank < 0) break;
    one.back().second = std::to_string(late.rank);
    out->Counter("lockstep_late_rank_waited_seconds_total",
                 "Time that this rank waited for late_rank, for the eight "
                 "longest waits.",
                 late.waited_seconds, one);
  }
}

void CollectTimes(const char* name, const char* help,
                  const task::TimeHistogram& times, const MetricLabels& labels,
                  MetricFamilies* out) {
  out->Histogram(name, help, task::kTimeBounds, times.counts, times.sum,
                 labels);
}

// Metrics of the job, as its chief reports them.
void CollectJob(const TaskReading& task, MetricFamilies* out) {
  if (!task.counters || !task.chief) return;
  const task::RankCounters& c = *task.counters;
  const MetricLabels labels = {{"job_id", task.job}};
  CollectTimes("lockstep_step_seconds",
               "Duration of steps, including the time between them.",
               c.step_times, labels, out);
  out->Gauge("lockstep_allreduce_bus_bandwidth_bytes_per_second",
             "Bus bandwidth of the newest steps: bytes reduced times 2 (n - 1) "
             "/ n per second of busy time.",
             c.communication.bus_bytes_per_second, labels);
  out->Gauge("lockstep_late_rank_cost_ratio",
             "Fraction of the newest steps' time that the straggler cost.",
             c.communication.straggler.cost, labels);
}

void CollectInput(const TaskReading& task, MetricFamilies* out) {
  if (!task.counters) return;
  const task::InputCounters& input = task.counters->input;
  const MetricLabels labels = {{"job_id", task.job},
                               {"rank", std::to_string(task.rank)}};
  out->Counter("lockstep_input_bytes_total",
               "Bytes of records read, including prefetched ones.",
               AsDouble(input.bytes), labels);
  out->Counter("lockstep_input_corrupt_records_total",
               "Records that failed to be read or decoded.",
               AsDouble(input.corrupt_records), labels);
  out->Gauge("lockstep_input_queue_depth",
             "Steps whose samples are prefetched.", AsDouble(input.queue_depth),
             labels);
  out->Gauge("lockstep_input_queue_capacity",
             "Largest number of prefetched steps.",
             AsDouble(input.queue_capacity), labels);
  MetricLabels stage = labels;
  const std::string help = "Time of all reader threads, by stage.";
  stage.emplace_back("stage", "read");
  out->Counter("lockstep_input_stage_seconds_total", help, input.read_seconds,
               stage);
  stage.back().second = "decode";
  out->Counter("lockstep_input_stage_seconds_total", help, input.decode_seconds,
               stage);
}

constexpr const char* kCheckpointPhaseNames[] = {"snapshot", "write", "fsync",
                                                 "commit", "restore"};
static_assert(std::size(kCheckpointPhaseNames) == task::kCheckpointPhases);

void CollectCheckpoints(const TaskReading& task, MetricFamilies* out) {
  if (!task.counters) return;
  const task::RankCounters& c = *task.counters;
  MetricLabels labels = {{"job_id", task.job},
                         {"rank", std::to_string(task.rank)}};
  out->Counter("lockstep_rank_checkpoint_bytes_total",
               "Bytes of a rank's checkpoint shards.",
               AsDouble(c.checkpoint_bytes), labels);
  out->Counter("lockstep_checkpoint_failures_total",
               "Checkpoints that a rank abandoned or failed to begin.",
               AsDouble(c.checkpoint_failures), labels);
  // The chief writes the state and publishes: its times are the job's.
  if (!task.chief) return;
  labels.emplace_back("phase", "");
  for (size_t i = 0; i < task::kCheckpointPhases; ++i) {
    labels.back().second = kCheckpointPhaseNames[i];
    out->Counter("lockstep_checkpoint_phase_seconds_total",
                 "Duration of checkpoints, by phase.", c.checkpoint_seconds[i],
                 labels);
    CollectTimes("lockstep_checkpoint_seconds",
                 "Duration of each checkpoint phase.", c.checkpoint_times[i],
                 {{"job_id", task.job}, {"phase", kCheckpointPhaseNames[i]}},
                 out);
  }
}

}  // namespace

void AgentMetrics::Set(AgentReadings readings) {
  MutexLock lock(&mu_);
  readings_ = std::move(readings);
}

AgentReadings AgentMetrics::Readings() const {
  MutexLock lock(&mu_);
  return readings_;
}

bool AgentMetrics::Offers(const Gpu& gpu) const {
  if (!options_.offered) return true;
  return std::any_of(
      options_.offered->begin(), options_.offered->end(),
      [&gpu](const Gpu& offered) { return offered.uuid == gpu.uuid; });
}

GpuPageInput AgentMetrics::GpuInput(const AgentReadings& readings) const {
  GpuPageInput input;
  if (options_.gpus == nullptr) return input;
  devices::GpuStatus all = options_.gpus->Latest(MonotonicNow());
  const std::vector<Gpu>& gpus = options_.gpus->gpus();
  // What goes with a GPU lies at the same place in each list, or is missing.
  const auto take = [](size_t i, const auto& from, auto* to) {
    if (i < from.size()) to->push_back(from[i]);
  };
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!Offers(gpus[i])) continue;
    take(i, gpus, &input.gpus);
    take(i, options_.gpus->places(), &input.places);
    take(i, all.readings, &input.status.readings);
    take(i, all.xids, &input.status.xids);
  }
  input.status.age = all.age;
  input.status.samples = all.samples;
  input.status.read_seconds = all.read_seconds;
  input.driver_version = options_.gpus->driver_version();
  input.hostname = options_.hostname;
  for (const TaskReading& task : readings.tasks) {
    if (task.ended) continue;
    for (const int32_t gpu : task.gpus) {
      input.holders[gpu] = {task.job, task.rank};
    }
  }
  return input;
}

std::vector<prometheus::MetricFamily> AgentMetrics::Collect() const {
  const AgentReadings readings = Readings();
  MetricFamilies out;
  if (const auto host = options_.read_host(); host.ok()) {
    CollectHost(*host, &out);
  }
  if (const auto disk = devices::ReadFileSystemUse(options_.dir); disk.ok()) {
    out.Gauge("lockstep_worker_disk_size_bytes",
              "Size of the file system that holds the daemon's directory.",
              AsDouble(disk->size_bytes));
    out.Gauge("lockstep_worker_disk_available_bytes",
              "Space available to non-root users on that file system.",
              AsDouble(disk->available_bytes));
  }
  out.Gauge("lockstep_worker_cpus_offered", "Cores offered to jobs.",
            readings.cpus_offered);
  out.Gauge("lockstep_worker_memory_offered_bytes", "Memory offered to jobs.",
            static_cast<double>(readings.memory_offered_bytes));
  if (readings.certificate_end) {
    out.Gauge(
        "lockstep_certificate_expiry_timestamp_seconds",
        "Expiry of this daemon's certificate, in seconds since the Unix epoch.",
        *readings.certificate_end);
  }
  out.Gauge("lockstep_worker_connected",
            "1 while the coordinator has admitted this daemon.",
            readings.connected ? 1 : 0);
  out.Counter("lockstep_worker_reconnects_total",
              "Closed streams to the coordinator.",
              AsDouble(readings.reconnects));
  out.Counter("lockstep_worker_work_dropped_total",
              "Jobs whose working directories were removed because the disk "
              "was nearly full.",
              AsDouble(readings.dropped_work));
  out.Gauge("lockstep_worker_warm_interpreters",
            "Python interpreters that are ready for a warm start of a rank.",
            static_cast<double>(readings.warm_ready));
  out.Counter("lockstep_worker_warm_starts_total",
              "Such interpreters that were taken for a rank.",
              AsDouble(readings.warm_starts));
  out.Counter("lockstep_worker_warm_failures_total",
              "Interpreters that ended before they became a rank.",
              AsDouble(readings.warm_failures));
  CollectGpus(GpuInput(readings), &out);
  for (const TaskReading& task : readings.tasks) {
    CollectTask(task, &out);
    CollectSteps(task, &out);
    CollectJob(task, &out);
    CollectInput(task, &out);
    CollectCheckpoints(task, &out);
  }
  return out.Take();
}

std::vector<prometheus::MetricFamily> DcgmMetrics::Collect() const {
  MetricFamilies out;
  CollectDcgm(metrics_->GpuInput(metrics_->Readings()), &out);
  return out.Take();
}

}  // namespace lockstep::worker::agent
