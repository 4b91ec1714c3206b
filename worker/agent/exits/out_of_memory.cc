#include "worker/agent/exits/out_of_memory.h"

#include <signal.h>

#include <algorithm>
#include <charconv>

#include "common/base/status.h"

namespace lockstep::worker::agent {
namespace {

// Where daemons that kill before the kernel does begin to.
constexpr double kHardlyAny = 0.05;

constexpr char kAdvice[] =
    "reduce its memory use, or request more with --memory or a larger machine "
    "type";

}  // namespace

std::optional<uint64_t> ParseOomKills(std::string_view vmstat) {
  constexpr std::string_view kKey = "oom_kill ";
  while (!vmstat.empty()) {
    const std::string_view line = vmstat.substr(0, vmstat.find('\n'));
    vmstat.remove_prefix(std::min(line.size() + 1, vmstat.size()));
    if (!line.starts_with(kKey)) continue;
    uint64_t value = 0;
    const auto parsed = std::from_chars(line.data() + kKey.size(),
                                        line.data() + line.size(), value);
    if (parsed.ec != std::errc()) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

void OomWatch::Add(MonoTime now, uint64_t kills) {
  readings_.emplace_back(now, kills);
  // Twice the window, because the daemon learns of an end with a delay.
  while (now - readings_.front().first > 2 * kWindow) readings_.pop_front();
}

std::optional<uint64_t> OomWatch::RiseAround(MonoTime end,
                                             uint64_t kills) const {
  for (const auto& [when, before] : readings_) {
    if (end - when > kWindow) continue;
    if (when > end) break;
    return kills >= before ? kills - before : 0;
  }
  return std::nullopt;
}

void OomWatch::AddAvailable(MonoTime now, double part) {
  available_.emplace_back(now, part);
  while (now - available_.front().first > 2 * kWindow) available_.pop_front();
}

std::optional<double> OomWatch::LeastAvailable(MonoTime end) const {
  std::optional<double> least;
  for (const auto& [when, part] : available_) {
    if (when > end || end - when > kWindow) continue;
    least = std::min(least.value_or(part), part);
  }
  return least;
}

void JudgeOutOfMemory(const OomEvidence& evidence, ExitStatus* exit) {
  const bool killed =
      exit->how == ExitStatus::How::kSignal && exit->value == SIGKILL;
  if (evidence.cgroup_kills.value_or(0) > 0) {
    if (killed && !evidence.told_to_end) {
      exit->out_of_memory = true;
      if (exit->message.empty()) {
        exit->message =
            fmt::format("the task exceeded its memory limit; {}", kAdvice);
      }
    } else if (!exit->ok() && exit->message.empty()) {
      exit->message = "the kernel's OOM killer killed a process of this task";
    }
    return;
  }
  // Its own cgroup would have counted it.
  if (evidence.cgroup_kills || !killed || evidence.told_to_end) return;
  if (!exit->message.empty()) return;
  if (evidence.host_kills.value_or(0) > 0) {
    exit->message = fmt::format(
        "probably out of memory: the kernel's OOM killer killed a process on "
        "this host at that time; {}",
        kAdvice);
    exit->reason = Reason::kOutOfMemory;
  } else if (evidence.least_available.value_or(1) < kHardlyAny) {
    exit->message = fmt::format(
        "probably out of memory: {:.1f} % of this host's memory was left at "
        "that time; {}",
        *evidence.least_available * 100, kAdvice);
    exit->reason = Reason::kOutOfMemory;
  }
}

}  // namespace lockstep::worker::agent
