// Decides whether the kernel killed a rank because memory ran out, and how
// certain that is.
//
// The kernel sends SIGKILL without a reason. The rank's cgroup counts OOM kills
// (memory.events), which is certain. Without a cgroup there is only the host's
// counter (oom_kill in /proc/vmstat, since Linux 4.13), which another process
// may have raised at the same time. Daemons such as systemd-oomd and earlyoom
// count their kills nowhere; then low memory on the host is the only evidence.
#ifndef LOCKSTEP_WORKER_AGENT_EXITS_OUT_OF_MEMORY_H_
#define LOCKSTEP_WORKER_AGENT_EXITS_OUT_OF_MEMORY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/model/job.h"

namespace lockstep::worker::agent {

// Parses "oom_kill" of /proc/vmstat; nullopt if the kernel does not count them.
std::optional<uint64_t> ParseOomKills(std::string_view vmstat);

// History of the host's counter and free memory over the last seconds.
// Thread-compatible.
class OomWatch {
 public:
  // Adds a reading, in order of time.
  void Add(MonoTime now, uint64_t kills);
  // Adds the fraction of the host's memory that is available, 0..1, in order of
  // time.
  void AddAvailable(MonoTime now, double part);
  // Returns the lowest value within kWindow before `end`; nullopt without one.
  std::optional<double> LeastAvailable(MonoTime end) const;
  // Returns the increase of the counter to `kills` from the earliest reading
  // within kWindow before `end`; nullopt without a reading before `end`.
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
  // Lowest fraction of the host's memory that was available shortly before.
  std::optional<double> least_available = std::nullopt;
  // The daemon has asked the rank to stop.
  bool told_to_end = false;
};

// Completes `exit`. Sets out_of_memory only if it is certain; otherwise writes
// the probable cause into a message that is empty so far.
void JudgeOutOfMemory(const OomEvidence& evidence, ExitStatus* exit);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_EXITS_OUT_OF_MEMORY_H_
