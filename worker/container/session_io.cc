#include "worker/container/session_io.h"

#include <charconv>

#include "common/os/procfs.h"

namespace lockstep::worker::container {
namespace {

std::optional<uint64_t> Field(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + name.size());
  uint64_t value = 0;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<uint64_t> ParseBytesMoved(std::string_view proc_pid_io) {
  const auto read = Field(proc_pid_io, "rchar: ");
  const auto written = Field(proc_pid_io, "wchar: ");
  if (!read || !written) return std::nullopt;
  return *read + *written;
}

std::optional<uint64_t> BytesMoved(pid_t session) {
  std::optional<uint64_t> sum;
  for (const ProcessStat& process : ReadAllProcesses()) {
    if (process.session != session) continue;
    const auto text = ReadProcFile(fmt::format("/proc/{}/io", process.pid));
    if (!text.ok()) continue;
    if (const auto moved = ParseBytesMoved(*text)) {
      sum = sum.value_or(0) + *moved;
    }
  }
  return sum;
}

}  // namespace lockstep::worker::container
