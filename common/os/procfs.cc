// Parsers of procfs.h: pure.
#include "common/os/procfs.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "common/os/proc_text.h"

namespace lockstep {
namespace {

template <typename T>
bool ToNumber(std::string_view word, T* value) {
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, *value);
  return error == std::errc() && stop == end && !word.empty();
}

// The number after `key` at the start of a line.
std::optional<uint64_t> Find(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = TakeLine(&text);
    if (line.substr(0, key.size()) != key) continue;
    line.remove_prefix(key.size());
    uint64_t value = 0;
    if (ToNumber(TakeWord(&line), &value)) return value;
  }
  return std::nullopt;
}

}  // namespace

StatusOr<CpuSeconds> ParseCpuSeconds(std::string_view proc_stat,
                                     double ticks_per_second) {
  std::string_view line = TakeLine(&proc_stat);
  if (TakeWord(&line) != "cpu") {
    return DataLoss("/proc/stat does not begin with the line of all cpus");
  }
  CpuSeconds cpu;
  double* const fields[] = {&cpu.user,   &cpu.nice, &cpu.system,  &cpu.idle,
                            &cpu.iowait, &cpu.irq,  &cpu.softirq, &cpu.steal};
  int found = 0;
  for (double* field : fields) {
    uint64_t ticks = 0;
    if (!ToNumber(TakeWord(&line), &ticks)) break;
    *field = static_cast<double>(ticks) / ticks_per_second;
    ++found;
  }
  if (found < 4) return DataLoss("/proc/stat has fewer than four cpu times");
  return cpu;
}

StatusOr<int64_t> ParseBootTime(std::string_view proc_stat) {
  const std::optional<uint64_t> seconds = Find(proc_stat, "btime ");
  if (!seconds) return DataLoss("/proc/stat has no btime");
  return static_cast<int64_t>(*seconds);
}

StatusOr<LoadAverage> ParseLoadAverage(std::string_view proc_loadavg) {
  LoadAverage load;
  if (!ToNumber(TakeWord(&proc_loadavg), &load.one) ||
      !ToNumber(TakeWord(&proc_loadavg), &load.five) ||
      !ToNumber(TakeWord(&proc_loadavg), &load.fifteen)) {
    return DataLoss("/proc/loadavg does not begin with three numbers");
  }
  return load;
}

StatusOr<MemoryInfo> ParseMemoryInfo(std::string_view proc_meminfo) {
  const auto bytes = [&](std::string_view key) {
    return Find(proc_meminfo, key).value_or(0) * 1024;
  };
  MemoryInfo memory;
  memory.total = bytes("MemTotal:");
  memory.available = bytes("MemAvailable:");
  memory.free = bytes("MemFree:");
  memory.buffers = bytes("Buffers:");
  memory.cached = bytes("Cached:");
  memory.swap_total = bytes("SwapTotal:");
  memory.swap_free = bytes("SwapFree:");
  if (memory.total == 0) return DataLoss("/proc/meminfo has no MemTotal");
  return memory;
}

StatusOr<std::map<std::string, NetworkCounters>> ParseNetworkCounters(
    std::string_view proc_net_dev) {
  std::map<std::string, NetworkCounters> devices;
  TakeLine(&proc_net_dev);  // Two lines of headings.
  TakeLine(&proc_net_dev);
  while (!proc_net_dev.empty()) {
    std::string_view line = TakeLine(&proc_net_dev);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = line.substr(0, colon);
    name = TakeWord(&name);
    line.remove_prefix(colon + 1);
    uint64_t fields[12] = {};
    for (uint64_t& field : fields) {
      if (!ToNumber(TakeWord(&line), &field)) {
        return DataLoss("/proc/net/dev has a line for {} that is too short",
                        name);
      }
    }
    devices[std::string(name)] = {fields[0], fields[1], fields[2],  fields[3],
                                  fields[8], fields[9], fields[10], fields[11]};
  }
  return devices;
}

StatusOr<ProcessStat> ParseProcessStat(std::string_view text,
                                       double ticks_per_second,
                                       uint64_t page_size) {
  ProcessStat stat;
  // The command is in brackets and may hold brackets itself: up to the last.
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos ||
      close < open) {
    return DataLoss("a process's stat names no command");
  }
  std::string_view head = text.substr(0, open);
  stat.command = std::string(text.substr(open + 1, close - open - 1));
  std::string_view rest = text.substr(close + 1);
  const std::string_view state = TakeWord(&rest);
  // From field 4 (parent) on; numbering as in proc(5).
  constexpr int kFirst = 4;
  constexpr int kLast = 24;
  int64_t fields[kLast + 1] = {};
  for (int i = kFirst; i <= kLast; ++i) {
    // As unsigned where signed does not fit: some limits are all ones.
    const std::string_view word = TakeWord(&rest);
    uint64_t large = 0;
    if (ToNumber(word, &fields[i])) continue;
    if (!ToNumber(word, &large)) {
      return DataLoss("a process's stat has no field {}", i);
    }
    fields[i] = static_cast<int64_t>(large);
  }
  if (state.size() != 1 || !ToNumber(TakeWord(&head), &stat.pid)) {
    return DataLoss("a process's stat has no pid or state");
  }
  const auto seconds = [&](int i) {
    return static_cast<double>(fields[i]) / ticks_per_second;
  };
  stat.state = state[0];
  stat.parent = static_cast<pid_t>(fields[4]);
  stat.group = static_cast<pid_t>(fields[5]);
  stat.session = static_cast<pid_t>(fields[6]);
  stat.user_seconds = seconds(14);
  stat.system_seconds = seconds(15);
  stat.children_user_seconds = seconds(16);
  stat.children_system_seconds = seconds(17);
  stat.threads = fields[20];
  stat.start_time = static_cast<uint64_t>(fields[22]);
  stat.virtual_bytes = static_cast<uint64_t>(fields[23]);
  stat.resident_bytes =
      fields[24] > 0 ? static_cast<uint64_t>(fields[24]) * page_size : 0;
  return stat;
}

StatusOr<ProcessIo> ParseProcessIo(std::string_view proc_pid_io) {
  const auto read = Find(proc_pid_io, "read_bytes: ");
  const auto written = Find(proc_pid_io, "write_bytes: ");
  if (!read || !written) {
    return DataLoss("a process's io has no read_bytes or write_bytes");
  }
  return ProcessIo{*read, *written};
}

std::vector<pid_t> TreeOf(pid_t root, const std::vector<ProcessStat>& all) {
  std::multimap<pid_t, pid_t> children;
  for (const ProcessStat& p : all) children.emplace(p.parent, p.pid);
  std::vector<pid_t> tree{root};
  // A set read while it changes could hold a circle: none comes in twice.
  std::set<pid_t> seen{root};
  for (size_t i = 0; i < tree.size(); ++i) {
    const auto [begin, end] = children.equal_range(tree[i]);
    for (auto it = begin; it != end; ++it) {
      if (seen.insert(it->second).second) tree.push_back(it->second);
    }
  }
  return tree;
}

}  // namespace lockstep
