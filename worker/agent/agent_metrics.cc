#include "worker/agent/agent_metrics.h"

#include <optional>
#include <utility>

namespace lockstep {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

// Collects values by family, in the order in which families first appear.
class Families {
 public:
  void Add(const std::string& name, MetricType type, const std::string& help,
           double value, const Labels& labels = {}) {
    MetricFamily& family = *Find(name, type, help);
    ClientMetric metric;
    for (const auto& [label, text] : labels) {
      metric.label.push_back({label, text});
    }
    if (type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family.metric.push_back(std::move(metric));
  }
  void Counter(const std::string& name, const std::string& help, double value,
               const Labels& labels = {}) {
    Add(name, MetricType::Counter, help, value, labels);
  }
  void Gauge(const std::string& name, const std::string& help, double value,
             const Labels& labels = {}) {
    Add(name, MetricType::Gauge, help, value, labels);
  }
  template <typename T>
  void Gauge(const std::string& name, const std::string& help,
             const std::optional<T>& value, const Labels& labels) {
    if (value) Gauge(name, help, static_cast<double>(*value), labels);
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  MetricFamily* Find(const std::string& name, MetricType type,
                     const std::string& help) {
    for (MetricFamily& family : families_) {
      if (family.name == name) return &family;
    }
    families_.push_back({name, help, type, {}});
    return &families_.back();
  }

  std::vector<MetricFamily> families_;
};

void CollectHost(const HostMetrics& host, Families* out) {
  const std::string cpu = "lockstep_host_cpu_seconds_total";
  const std::string cpu_help = "CPU time of this host by mode.";
  const CpuSeconds& c = host.cpu;
  for (const auto& [mode, seconds] :
       std::initializer_list<std::pair<const char*, double>>{
           {"user", c.user},
           {"nice", c.nice},
           {"system", c.system},
           {"idle", c.idle},
           {"iowait", c.iowait},
           {"irq", c.irq},
           {"softirq", c.softirq},
           {"steal", c.steal}}) {
    out->Counter(cpu, cpu_help, seconds, {{"mode", mode}});
  }
  out->Gauge("lockstep_host_load1", "Load average over one minute.",
             host.load.one);
  out->Gauge("lockstep_host_memory_total_bytes", "Memory of this host.",
             static_cast<double>(host.memory.total));
  out->Gauge("lockstep_host_memory_available_bytes",
             "Memory that programs could still have.",
             static_cast<double>(host.memory.available));
  for (const auto& [device, network] : host.network) {
    const std::string name = "lockstep_host_network_bytes_total";
    const std::string help = "Bytes by network device and direction.";
    out->Counter(name, help, static_cast<double>(network.receive_bytes),
                 {{"device", device}, {"direction", "receive"}});
    out->Counter(name, help, static_cast<double>(network.transmit_bytes),
                 {{"device", device}, {"direction", "transmit"}});
  }
}

void CollectGpu(const GpuReading& gpu, Families* out) {
  const Labels labels = {{"gpu", std::to_string(gpu.index)}};
  out->Gauge("lockstep_gpu_utilization_ratio",
             "Part of the last sample period in which a kernel ran.",
             gpu.utilization, labels);
  out->Gauge("lockstep_gpu_memory_access_ratio",
             "Part of the last sample period in which memory was accessed.",
             gpu.memory_access, labels);
  out->Gauge("lockstep_gpu_memory_used_bytes", "GPU memory in use.",
             gpu.memory_used_bytes, labels);
  out->Gauge("lockstep_gpu_memory_total_bytes", "GPU memory.",
             gpu.memory_total_bytes, labels);
  out->Gauge("lockstep_gpu_power_watts", "Power draw.", gpu.power_watts,
             labels);
  out->Gauge("lockstep_gpu_temperature_celsius", "Temperature by sensor.",
             gpu.temperature_celsius,
             {{"gpu", std::to_string(gpu.index)}, {"sensor", "core"}});
}

void CollectTask(const TaskReading& task, Families* out) {
  const Labels labels = {{"job_id", task.job},
                         {"role", task.role},
                         {"index", std::to_string(task.index)},
                         {"rank", std::to_string(task.rank)}};
  out->Counter("lockstep_task_cpu_seconds_total",
               "CPU time of a rank and its children.", task.cpu_seconds,
               labels);
  out->Gauge("lockstep_task_memory_bytes",
             "Resident memory of a rank and its children.",
             static_cast<double>(task.memory_bytes), labels);
  out->Gauge("lockstep_task_memory_peak_bytes",
             "Highest resident memory that was seen.",
             static_cast<double>(task.memory_peak_bytes), labels);
  Labels io = labels;
  io.push_back({"direction", "read"});
  out->Counter("lockstep_task_io_bytes_total",
               "Bytes from and to storage, by direction.",
               static_cast<double>(task.read_bytes), io);
  io.back().second = "write";
  out->Counter("lockstep_task_io_bytes_total",
               "Bytes from and to storage, by direction.",
               static_cast<double>(task.write_bytes), io);
  out->Counter("lockstep_task_log_bytes_total",
               "Bytes of a rank's log sent to the coordinator.",
               static_cast<double>(task.log_bytes), labels);
}

}  // namespace

void AgentMetrics::Set(AgentReadings readings) {
  MutexLock lock(&mu_);
  readings_ = std::move(readings);
}

std::vector<prometheus::MetricFamily> AgentMetrics::Collect() const {
  AgentReadings readings;
  {
    MutexLock lock(&mu_);
    readings = readings_;
  }
  Families families;
  CollectHost(readings.host, &families);
  families.Gauge("lockstep_worker_cpus_offered", "Cores offered to jobs.",
                 readings.cpus_offered);
  families.Gauge("lockstep_worker_memory_offered_bytes",
                 "Memory offered to jobs.",
                 static_cast<double>(readings.memory_offered_bytes));
  families.Gauge("lockstep_worker_connected",
                 "1 while the coordinator has admitted this daemon.",
                 readings.connected ? 1 : 0);
  families.Counter("lockstep_worker_reconnects_total",
                   "Streams to the coordinator that ended.",
                   static_cast<double>(readings.reconnects));
  for (const GpuReading& gpu : readings.gpus) CollectGpu(gpu, &families);
  for (const TaskReading& task : readings.tasks) CollectTask(task, &families);
  return families.Take();
}

}  // namespace lockstep
