#include "worker/agent/host/task_cgroup.h"

#include <charconv>
#include <string_view>

#include "common/os/procfs.h"

namespace lockstep::worker::agent {
namespace {

std::string PathOf(pid_t pid, const std::string& root) {
  const auto text =
      ReadProcFile(root + "/proc/" + std::to_string(pid) + "/cgroup");
  if (!text.ok()) return "";
  const size_t at = text->rfind("0::/");
  if (at == std::string::npos || (at > 0 && (*text)[at - 1] != '\n')) return "";
  return text->substr(at + 3, text->find('\n', at) - at - 3);
}

// The number behind "KEY " at the start of a line.
std::optional<uint64_t> Field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.substr(0, key.size()) != key) continue;
    uint64_t value = 0;
    const auto parsed = std::from_chars(line.data() + key.size(),
                                        line.data() + line.size(), value);
    if (parsed.ec == std::errc()) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> OwnCgroup(pid_t pid, pid_t daemon,
                                     const std::string& root) {
  const std::string path = PathOf(pid, root);
  if (path.empty() || path == "/" || path == PathOf(daemon, root)) {
    return std::nullopt;
  }
  return root + "/sys/fs/cgroup" + path;
}

std::optional<TaskCgroupReading> ReadTaskCgroup(const std::string& directory) {
  const auto memory = ReadProcFile(directory + "/memory.events");
  const auto cpu = ReadProcFile(directory + "/cpu.stat");
  if (!memory.ok() || !cpu.ok()) return std::nullopt;
  TaskCgroupReading reading;
  reading.oom_kills = Field(*memory, "oom_kill ").value_or(0);
  reading.throttled_seconds =
      static_cast<double>(Field(*cpu, "throttled_usec ").value_or(0)) / 1e6;
  return reading;
}

}  // namespace lockstep::worker::agent
