// Judges GPUs, each by its UUID: which may not get the next job, why, and for
// how long.
//
// Pure: no I/O, no lock, no clock. Callers pass `now`, which never goes back.
//
// A verdict comes from one of
//   - an Xid after which only a reset, a boot or a repair helps, by NVIDIA's
//     catalogue (below); it lasts until the host boots. Xids of a program's own
//     faults (13, 31, 43, 68, 69) and of what the driver repaired (63, 92)
//     never count, nor does 45, which follows another one;
//   - an uncorrected memory error, which the error counter shows;
//   - a row of its memory that waits for a reset, or could not be replaced;
//   - lost lanes of its PCIe link, or lost NVLinks, for `standing`;
//   - clocks that the hardware or the driver keeps low to protect it, for
//     `slow`, with breaks of `slow_break` at most;
//   - the share of its runs that began to die on it: `deaths` and half of its
//     last `runs` at least, of two jobs or more, and twice the share of all
//     other GPUs.
// All but the first last `first`, and twice as long each time, up to `longest`.
// At their end the GPU is checked (member_checks.h), where its daemon can do
// so. A reading that is still bad then gives the next verdict, unless an
// operator has lifted the last one (Gpu::lift_end). A GPU without a verdict for
// `longest` after the last one starts again at `first`.
//
// The verdicts are stored with the node (Gpu::fault, Gpu::lift_end). This
// history is not: a restarted coordinator learns it again.
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
  // Those whose immediate action in NVIDIA's catalogue for A100 and newer is
  // RESET_GPU, RESTART_BM or RESTART_VM, a workflow that ends in one of these
  // (48, 74), or a look at the power cables (54):
  // docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
  //
  //    46  GPU stopped processing        119  timeout of the GSP
  //    48  double-bit ECC error          120  error of the GSP
  //    54  too little power              136  NVLink training failed
  //    62  PMU halted                    140  ECC error that was not handled
  //    64  row could not be replaced     143  GPU could not be initialized
  //    74  NVLink error                  151  key rotation failed
  //    79  fallen off the bus            155  NVLink, by the driver's word
  //    95  uncontained ECC error         156  a unit must be retired by a reset
  //   109  context switch timed out      158  fatal timeout
  //   110  security fault
  //
  // Not among them: 94, a contained ECC error, which ends one program, and of
  // which the counter of uncorrected errors tells; 144 to 150 of NVLink 5,
  // whose action depends on more than the number; 154, which names the action
  // that another Xid asks for.
  std::set<int32_t> fatal_xids = {46,  48,  54,  62,  64,  74,  79,
                                  95,  109, 110, 119, 120, 136, 140,
                                  143, 151, 155, 156, 158};
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
  // Call it with each reading of `gpu`, also if it is withheld: `withheld` only
  // keeps it from being judged again.
  std::optional<GpuVerdict> TakeReading(const Gpu& gpu, const GpuUsage& usage,
                                        bool withheld, Time now);
  // A check found `reason`. The verdict lasts longer than the last one.
  GpuVerdict TakeFailedCheck(const std::string& uuid, std::string reason,
                             Time now);
  // A run of the job `uid` on the GPUs ended. `died`: those of the rank that
  // failed first.
  void NoteRun(const std::vector<std::string>& uuids,
               const std::set<std::string>& died, const std::string& uid);
  // Judges by the runs.
  std::optional<GpuVerdict> JudgeRuns(const std::string& uuid, Time now);
  // An operator says that the GPU is well: forgets its history. Until its
  // Gpu::lift_end readings that stand do not count.
  void Lift(const std::string& uuid);

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
  };

  // Null: no more GPUs are remembered, or it has no UUID.
  History* HistoryOf(const std::string& uuid);
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
