// Detects jobs that hang, from the status pages of their ranks. Pure.
//
// A step ends only when every rank has arrived in its last all-reduce. So if
// some ranks wait there, and another rank's page has not changed for the stall
// deadline D, that rank is frozen: stopped, or stuck outside the collective. It
// may also have been stopped within the all-reduce of the step before, which
// the others have left.
//   D = max(5 s, 4 x p99 of the last 100 steps); 10 min for the first step of
//   a generation, and 1 min until ten steps were seen.
// A false alarm costs a restart, so none is raised
//   - while a rank does work that may take long: a checkpoint, an evaluation,
//     forming, or anything before the first and after the last step;
//   - while a rank's page is not reported: membership.h handles silent hosts;
//   - if no rank waits: then all ranks are equally slow;
//   - before three times D, and half a minute, if all ranks wait in the same
//     step, because of the network between them or of one rank that was stopped
//     within the all-reduce (after D the coordinator asks their nodes whether
//     it is the network);
//   - before six times D, and a minute, for a rank that uses the CPU (more than
//     2 % of one core over the last two seconds) or waits for input: it may be
//     slow but healthy.
// Of a program only the ranks that have joined are looked at, and nothing is
// known of the others. Its all-reduce is inside its framework, so often no rank
// is seen waiting, and it may save or evaluate without saying so. So the rule
// above counts only where all ranks have joined, some of them wait in the phase
// all-reduce, and the frozen one is in a phase that says what it does (not
// "other"). Else all joined ranks must stand still
//   - in phases that say what they do, for six times D and at least a minute;
//   - with one in "other", for six times D and at least 10 min, and none of
//     them may use the CPU.
// Before it has made steps there is no limit at all.
// From half of D on, then from half of the limit, the rank counts as stalled,
// and users see when the generation will be stopped. The announced limit
// applies to the whole gang, because a rank other than the named one may stall,
// too. It may grow when the rank begins to use the CPU, and it never shrinks
// until a rank makes progress.
#ifndef LOCKSTEP_SERVER_CORE_STALL_H_
#define LOCKSTEP_SERVER_CORE_STALL_H_

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "server/core/job.h"

namespace lockstep::server {

struct StallOptions {
  Duration least = std::chrono::seconds(5);
  Duration first_step = std::chrono::minutes(10);
  Duration early = std::chrono::minutes(1);
  int factor = 4;
  int patient_factor = 6;
  Duration patient_least = std::chrono::minutes(1);
  Duration silent_least = std::chrono::minutes(10);
  int all_factor = 3;
  Duration all_least = std::chrono::seconds(30);
  // A page that is older than this is not evidence.
  Duration fresh = std::chrono::seconds(3);
};

struct Stall {
  // -1 if all ranks wait.
  int32_t rank = 0;
  std::string phase;
  int64_t step = 0;
  // How long its page has not changed.
  Duration still{};
  Duration deadline{};
  // The generation is stopped when `still` reaches this.
  Duration limit{};
  // Number of ranks that are seen to wait for it.
  int32_t waiting = 0;
};

// "rank 1 (worker 0 on b) stands still for 12 s in compute of step 7, and 1
// other rank waits for it; the gang is stopped and started again after 20 s at
// the earliest". If all ranks wait, it adds that the deadline applies if their
// nodes do not reach each other. `stall` belongs to `job`.
std::string Describe(const Job& job, const Stall& stall);

class StallWatch {
 public:
  explicit StallWatch(StallOptions options = {}) : options_(options) {}

  // Discards all data of older generations.
  void Reset(Generation generation, JobKind kind = JobKind::kNative);
  void Take(const RankStatus& report, MonoTime now);

  // The stall deadline D.
  Duration Deadline() const;
  // For a generation of `world_size` ranks, those outside the group included:
  // returns the stalled rank that is nearest to its limit or past it.
  std::optional<Stall> StalledRank(int32_t world_size, MonoTime now) const;
  // Returns the same, but only past its limit: the rank is frozen.
  std::optional<Stall> Check(int32_t world_size, MonoTime now) const;
  // Records that users were shown `stall` and its limit.
  void RecordAnnounced(const Stall& stall);

 private:
  struct Page {
    RankProgress progress;
    // When the page last changed.
    MonoTime since;
    MonoTime reported;
    // CPU time as it was reported, over the last kCpuWindow.
    struct CpuSample {
      MonoTime time;
      double seconds = 0;
    };
    std::deque<CpuSample> cpu;

    bool UsesCpu() const;
  };
  using Standing = std::map<int32_t, const Page*>;

  // The pages that count, if all of them have stood still for half of D, and
  // none may for a good reason.
  std::optional<Standing> Standstill(MonoTime now) const;
  // The rank of those that do not wait in the step `front` that is nearest to
  // its limit.
  std::optional<Stall> Frozen(const Standing& standing, int64_t front,
                              MonoTime now) const;
  // The same for a program where no rank is known to wait for another.
  std::optional<Stall> Silent(const Standing& standing, MonoTime now) const;

  const StallOptions options_;
  Generation generation_ = 0;
  JobKind kind_ = JobKind::kNative;
  std::map<int32_t, Page> pages_;
  // The largest limit announced since a rank last made progress; 0 if none.
  Duration announced_{};
  // Durations of the newest steps, at the resolution of the reports.
  std::deque<Duration> steps_;
  int64_t committed_ = -1;
  // When `committed_` rose; nullopt: not yet in this generation.
  std::optional<MonoTime> stepped_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_STALL_H_
