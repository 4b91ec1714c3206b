// Judges GPUs, each by its UUID: which may not get the next job, why, and for
// how long.
//
// Pure: no I/O, no lock, no clock. Callers pass `now`, which never goes back.
//
// A verdict comes from one of
//   - an Xid that tells of broken hardware or a dead driver
//     (docs.nvidia.com/deploy/xid-errors); it lasts until the host boots.
//     Xids of a program's own faults (13, 31, 43, 45, 68, 69) never count;
//   - an uncorrected memory error, which the error counter shows;
//   - a row of its memory that waits for a reset, or could not be replaced;
//   - lost lanes of its PCIe link, or lost NVLinks, for `standing`;
//   - clocks that the hardware or the driver keeps low to protect it, for
//     `slow`, with breaks of `slow_break` at most;
//   - the share of its runs that began to die on it: `deaths` and half of its
//     last `runs` at least, of two jobs or more, and twice the share of all
//     other GPUs.
// All but the first last `first`, and twice as long each time, up to `longest`.
// A reading that is still bad at the end gives the next verdict. A GPU without
// a verdict for `longest` after the last one starts again at `first`.
//
// The verdicts are stored with the node (Gpu::fault). This history is not: a
// restarted coordinator learns it again.
#ifndef LOCKSTEP_SERVER_CORE_GPU_VERDICT_H_
#define LOCKSTEP_SERVER_CORE_GPU_VERDICT_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/node.h"

namespace lockstep::server {

struct GpuVerdictOptions {
  // Double-bit ECC error, GPU halted, row not replaced, NVLink error, fallen
  // off the bus, contained and uncontained ECC error, GSP timeout and error,
  // unrecovered ECC error; see NVIDIA's catalogue.
  std::set<int32_t> fatal_xids = {46, 48, 62,  64,  74, 79,
                                  94, 95, 119, 120, 140};
  Duration standing = std::chrono::minutes(1);
  Duration slow = std::chrono::minutes(10);
  Duration slow_break = std::chrono::seconds(30);
  Duration first = std::chrono::hours(1);
  Duration longest = std::chrono::hours(24);
  size_t runs = 8;
  size_t deaths = 3;
};

struct GpuVerdict {
  // "3 uncorrected memory errors".
  std::string reason;
  // Absent: until the host boots or an operator lifts it.
  std::optional<Duration> length;
};

class GpuJudge {
 public:
  explicit GpuJudge(GpuVerdictOptions options = {}) : options_(options) {}

  std::optional<GpuVerdict> TakeXid(int32_t xid) const;
  // Call it with each reading, also of a GPU that is withheld: `withheld` only
  // keeps it from being judged again.
  std::optional<GpuVerdict> TakeReading(const std::string& uuid,
                                        const GpuUsage& usage, bool withheld,
                                        Time now);
  // A run of the job `uid` on the GPUs ended. `died`: those of the rank that
  // failed first.
  void NoteRun(const std::vector<std::string>& uuids,
               const std::set<std::string>& died, const std::string& uid);
  // Judges by the runs.
  std::optional<GpuVerdict> JudgeRuns(const std::string& uuid, Time now);
  // An operator says that the GPU is well: forgets its history. Readings that
  // stand do not count for `longest`.
  void Lift(const std::string& uuid, Time now);

 private:
  struct Run {
    std::string uid;
    bool died = false;
  };
  struct History {
    std::optional<int64_t> errors;
    int32_t most_nvlinks = 0;
    // Since when the reading is bad.
    std::optional<MonoTime> narrow;
    std::optional<MonoTime> unlinked;
    std::optional<MonoTime> slow_since;
    MonoTime slow_last;
    std::deque<Run> runs;
    int times = 0;
    // Until when a new verdict is longer than the last.
    MonoTime fresh_until;
    std::optional<MonoTime> lifted_until;
  };

  // Why a standing reading is bad; updates since when it is.
  std::string StandingTrouble(const GpuUsage& usage, MonoTime now,
                              History* history) const;
  GpuVerdict Withhold(std::string reason, MonoTime now, History* history) const;

  GpuVerdictOptions options_;
  // By UUID.
  std::map<std::string, History> gpus_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_GPU_VERDICT_H_
