#include "worker/devices/host_capacity.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "common/os/procfs.h"

namespace lockstep::worker::devices {
namespace {

std::optional<int64_t> ParseNumber(std::string_view* text) {
  int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, number);
  if (parsed.ec != std::errc() || number <= 0) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(parsed.ptr - text->data()));
  return number;
}

double AllowedCpus() {
  // A mask of 8,192 CPUs; a host with more falls back to what is online.
  cpu_set_t* set = CPU_ALLOC(8192);
  const size_t size = CPU_ALLOC_SIZE(8192);
  CPU_ZERO_S(size, set);
  int count = 0;
  if (sched_getaffinity(0, size, set) == 0) count = CPU_COUNT_S(size, set);
  CPU_FREE(set);
  if (count == 0) count = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(count, 1);
}

// The directory of the cgroup v2 that ranks are below: `rank_cgroup`, or ours,
// which is the line "0::/path" of /proc/self/cgroup.
std::string CgroupPath(const std::string& rank_cgroup) {
  if (const std::string path = "/sys/fs/cgroup" + rank_cgroup;
      !rank_cgroup.empty() && access(path.c_str(), F_OK) == 0) {
    return path;
  }
  const auto text = ReadProcFile("/proc/self/cgroup");
  if (!text.ok()) return "";
  const size_t at = text->find("0::");
  if (at == std::string::npos || (at > 0 && (*text)[at - 1] != '\n')) return "";
  const size_t end = text->find('\n', at);
  return "/sys/fs/cgroup" + text->substr(at + 3, end - at - 3);
}

}  // namespace

std::optional<double> ParseCpuMax(std::string_view text) {
  const auto quota = ParseNumber(&text);
  if (!quota || text.empty() || text[0] != ' ') return std::nullopt;
  text.remove_prefix(1);
  const auto period = ParseNumber(&text);
  if (!period) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<int64_t> ParseMemoryMax(std::string_view text) {
  return ParseNumber(&text);
}

StatusOr<HostCapacity> ReadHostCapacity(const std::string& rank_cgroup) {
  HostCapacity capacity;
  capacity.cpus = AllowedCpus();
  LOCKSTEP_ASSIGN_OR_RETURN(const HostMetrics host, ReadHostMetrics());
  capacity.memory_bytes = static_cast<int64_t>(host.memory.total);
  const auto limit = [&](const auto& text, auto parse, auto* value) {
    if (!text.ok()) return;
    if (const auto most = parse(*text)) *value = std::min(*value, *most);
  };
  // Every ancestor may set a limit of its own.
  for (std::string path = CgroupPath(rank_cgroup); path.size() > 14;) {
    limit(ReadProcFile(path + "/cpu.max"), ParseCpuMax, &capacity.cpus);
    limit(ReadProcFile(path + "/memory.max"), ParseMemoryMax,
          &capacity.memory_bytes);
    path.resize(path.find_last_of('/'));
  }
  // In a container with a cgroup namespace the limits are at the root; v1 has
  // them there too.
  limit(ReadProcFile("/sys/fs/cgroup/cpu.max"), ParseCpuMax, &capacity.cpus);
  limit(ReadProcFile("/sys/fs/cgroup/memory.max"), ParseMemoryMax,
        &capacity.memory_bytes);
  limit(ReadProcFile("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        ParseMemoryMax, &capacity.memory_bytes);
  const auto quota = ReadProcFile("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto period = ReadProcFile("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota.ok() && period.ok()) {
    const std::string joined =
        quota->substr(0, quota->find('\n')) + " " + *period;
    if (const auto cpus = ParseCpuMax(joined)) {
      capacity.cpus = std::min(capacity.cpus, *cpus);
    }
  }
  return capacity;
}

}  // namespace lockstep::worker::devices
