// Whether the kernel ended a rank for want of memory, and how surely.
//
// The kernel sends SIGKILL and does not say why. What is known: the rank's
// cgroup counts such kills (memory.events), which is certain; without one there
// is only the host's counter (oom_kill of /proc/vmstat, since Linux 4.13),
// which may have risen for another process at the same time. And a
// daemon (systemd-oomd, earlyoom) may have sent it, which counts nowhere: then
// the host had hardly any memory left.
#ifndef LOCKSTEP_WORKER_AGENT_EXITS_OUT_OF_MEMORY_H_
#define LOCKSTEP_WORKER_AGENT_EXITS_OUT_OF_MEMORY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/model/job.h"

namespace lockstep {

// "oom_kill" of /proc/vmstat; nothing where the kernel does not count them.
std::optional<uint64_t> ParseOomKills(std::string_view vmstat);

// The host's counter and its free memory over the last seconds.
// Thread-compatible.
class OomWatch {
 public:
  // A reading; in the order of time.
  void Add(MonoTime now, uint64_t kills);
  // The part of the host's memory that is available, 0..1; in the same order.
  void AddAvailable(MonoTime now, double part);
  // The least of those within kWindow before `end`; nothing without any.
  std::optional<double> LeastAvailable(MonoTime end) const;
  // How much the counter rose to `kills` from the earliest reading that is at
  // most kWindow before `end`; nothing without a reading before `end`.
  std::optional<uint64_t> RiseAround(MonoTime end, uint64_t kills) const;

  // Freeing a large process's memory takes seconds.
  static constexpr Duration kWindow = std::chrono::seconds(10);

 private:
  std::deque<std::pair<MonoTime, uint64_t>> readings_;
  std::deque<std::pair<MonoTime, double>> available_;
};

struct OomEvidence {
  // Kills that the rank's own cgroup counted, over its life.
  std::optional<uint64_t> cgroup_kills = std::nullopt;
  // Kills that the host counted around the rank's end.
  std::optional<uint64_t> host_kills = std::nullopt;
  // The least part of the host's memory that was available shortly before.
  std::optional<double> least_available = std::nullopt;
  // We have told the rank to end.
  bool told_to_end = false;
};

// Completes `exit`: out_of_memory only when it is certain; else its sentence
// says what is probable, where it has none yet.
void JudgeOutOfMemory(const OomEvidence& evidence, ExitStatus* exit);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_EXITS_OUT_OF_MEMORY_H_
