#include "worker/agent/metrics/node_metrics.h"

#include <sys/utsname.h>

#include "worker/agent/metrics/metric_families.h"
#include "worker/devices/host_readings.h"

namespace lockstep::worker::agent {
namespace {

void CollectCpus(MetricFamilies* out) {
  const auto stat = ReadProcFile("/proc/stat");
  if (!stat.ok()) return;
  for (const auto& [number, cpu] :
       devices::ParseCpus(*stat, ClockTicksPerSecond())) {
    const std::pair<const char*, double> modes[] = {
        {"idle", cpu.idle},     {"iowait", cpu.iowait},   {"irq", cpu.irq},
        {"nice", cpu.nice},     {"softirq", cpu.softirq}, {"steal", cpu.steal},
        {"system", cpu.system}, {"user", cpu.user}};
    for (const auto& [mode, seconds] : modes) {
      out->Counter("node_cpu_seconds_total",
                   "Seconds the CPUs spent in each mode.", seconds,
                   {{"cpu", std::to_string(number)}, {"mode", mode}});
    }
  }
}

void CollectMemory(const MemoryInfo& memory, MetricFamilies* out) {
  const std::pair<const char*, uint64_t> fields[] = {
      {"MemTotal", memory.total},    {"MemAvailable", memory.available},
      {"MemFree", memory.free},      {"Buffers", memory.buffers},
      {"Cached", memory.cached},     {"SwapTotal", memory.swap_total},
      {"SwapFree", memory.swap_free}};
  for (const auto& [field, bytes] : fields) {
    out->Gauge(std::string("node_memory_") + field + "_bytes",
               std::string("Memory information field ") + field + "_bytes.",
               AsDouble(bytes));
  }
}

void CollectNetwork(const std::map<std::string, NetworkCounters>& devices,
                    MetricFamilies* out) {
  for (const auto& [device, n] : devices) {
    const std::pair<const char*, uint64_t> fields[] = {
        {"receive_bytes", n.receive_bytes},
        {"receive_packets", n.receive_packets},
        {"receive_errs", n.receive_errors},
        {"receive_drop", n.receive_drops},
        {"transmit_bytes", n.transmit_bytes},
        {"transmit_packets", n.transmit_packets},
        {"transmit_errs", n.transmit_errors},
        {"transmit_drop", n.transmit_drops}};
    for (const auto& [field, value] : fields) {
      out->Counter(std::string("node_network_") + field + "_total",
                   std::string("Network device statistic ") + field + ".",
                   AsDouble(value), {{"device", device}});
    }
  }
}

void CollectDisks(const std::map<std::string, devices::DiskCounters>& disks,
                  MetricFamilies* out) {
  for (const auto& [device, disk] : disks) {
    const MetricLabels labels = {{"device", device}};
    out->Counter("node_disk_read_bytes_total",
                 "The total number of bytes read successfully.",
                 AsDouble(disk.read_bytes), labels);
    out->Counter("node_disk_written_bytes_total",
                 "The total number of bytes written successfully.",
                 AsDouble(disk.written_bytes), labels);
    out->Counter("node_disk_reads_completed_total",
                 "The total number of reads completed successfully.",
                 AsDouble(disk.reads), labels);
    out->Counter("node_disk_writes_completed_total",
                 "The total number of writes completed successfully.",
                 AsDouble(disk.writes), labels);
    out->Counter("node_disk_io_time_seconds_total",
                 "Total seconds spent doing I/Os.", disk.io_seconds, labels);
  }
}

void CollectFileSystems(MetricFamilies* out) {
  const auto mounts = ReadProcFile("/proc/self/mounts");
  if (!mounts.ok()) return;
  for (const devices::MountPoint& mount : devices::ParseDiskMounts(*mounts)) {
    const auto use = devices::ReadFileSystemUse(mount.path);
    if (!use.ok()) continue;
    const MetricLabels labels = {{"device", mount.device},
                                 {"fstype", mount.type},
                                 {"mountpoint", mount.path}};
    out->Gauge("node_filesystem_size_bytes", "Filesystem size in bytes.",
               AsDouble(use->size_bytes), labels);
    out->Gauge("node_filesystem_free_bytes", "Filesystem free space in bytes.",
               AsDouble(use->free_bytes), labels);
    out->Gauge("node_filesystem_avail_bytes",
               "Filesystem space available to non-root users in bytes.",
               AsDouble(use->available_bytes), labels);
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> NodeMetrics::Collect() const {
  MetricFamilies out;
  const auto host = devices::ReadHostReadings();
  if (!host.ok()) return out.Take();
  CollectCpus(&out);
  out.Gauge("node_load1", "1m load average.", host->base.load.one);
  out.Gauge("node_load5", "5m load average.", host->base.load.five);
  out.Gauge("node_load15", "15m load average.", host->base.load.fifteen);
  CollectMemory(host->base.memory, &out);
  CollectNetwork(host->base.network, &out);
  CollectDisks(host->disks, &out);
  CollectFileSystems(&out);
  for (const auto& [resource, seconds] : host->pressure) {
    out.Counter("node_pressure_" + resource + "_waiting_seconds_total",
                "Total time in seconds that processes have waited for " +
                    resource + ".",
                seconds);
  }
  for (const auto& [port, bytes] : host->infiniband) {
    const size_t slash = port.find('/');
    const MetricLabels labels = {{"device", port.substr(0, slash)},
                                 {"port", port.substr(slash + 1)}};
    out.Counter("node_infiniband_port_data_received_bytes_total",
                "Number of data octets received on all links.",
                AsDouble(bytes.receive_bytes), labels);
    out.Counter("node_infiniband_port_data_transmitted_bytes_total",
                "Number of data octets transmitted on all links.",
                AsDouble(bytes.transmit_bytes), labels);
  }
  if (host->oom_kills) {
    out.Counter("node_vmstat_oom_kill",
                "/proc/vmstat information field oom_kill.",
                AsDouble(*host->oom_kills));
  }
  out.Gauge("node_boot_time_seconds", "Node boot time, in unixtime.",
            static_cast<double>(host->base.boot_time_unix_seconds));
  utsname name{};
  if (uname(&name) == 0) {
    out.Gauge(
        "node_uname_info",
        "Labeled system information as provided by the uname system call.", 1,
        {{"sysname", name.sysname},
         {"release", name.release},
         {"version", name.version},
         {"machine", name.machine},
         {"nodename", name.nodename},
         {"domainname", "(none)"}});
  }
  return out.Take();
}

}  // namespace lockstep::worker::agent
