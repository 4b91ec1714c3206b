// Whether a native job hangs, from what its ranks' pages say. Pure.
//
// A step ends only when every rank has arrived in its last all-reduce. So when
// some ranks wait there, and another one's page has not moved for the stall
// deadline D, that one is frozen: stopped, or stuck outside the collective. It
// may also have been stopped within the all-reduce of the step before, which
// the others have left.
//   D = max(5 s, 4 x p99 of the last 100 steps); 10 min for the first step of
//   a generation, and 1 min until ten steps were seen.
// Wrong alarms cost a restart, so it is not said
//   - while a rank does what may take long: a checkpoint, an evaluation,
//     forming, or anything before the first and after the last step;
//   - while any rank's page is not heard of: silence of a host is
//     membership.h's;
//   - when nobody waits: all are slow alike;
//   - before three times D, and half a minute, when all wait in the same step:
//     the network between them, or one that was stopped within the all-reduce
//     (the coordinator asks their nodes after D whether it is the network);
//   - before six times D, and a minute, of a rank that uses the CPU (more than
//     2 % of one core over the last two seconds) or waits for input: it may be
//     slow and well.
// From half of D on it is seen to stand still, and people are told when the
// generation will be stopped. What they were told is kept for the whole gang,
// as another rank than the named one may stand, too: the limit may grow when
// the rank begins to use the CPU, and what was told never shrinks until a rank
// moves.
#ifndef LOCKSTEP_SERVER_CORE_STALL_H_
#define LOCKSTEP_SERVER_CORE_STALL_H_

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "server/core/job.h"

namespace lockstep {

struct StallOptions {
  Duration least = std::chrono::seconds(5);
  Duration first_step = std::chrono::minutes(10);
  Duration early = std::chrono::minutes(1);
  int factor = 4;
  int patient_factor = 6;
  Duration patient_least = std::chrono::minutes(1);
  int all_factor = 3;
  Duration all_least = std::chrono::seconds(30);
  // A page that was not heard of for so long says nothing.
  Duration fresh = std::chrono::seconds(3);
};

struct Stall {
  // -1: all wait, and nobody is late.
  int32_t rank = 0;
  std::string phase;
  int64_t step = 0;
  // For how long its page has stood.
  Duration still{};
  Duration deadline{};
  // When it has stood for so long, the generation is stopped.
  Duration limit{};
  // How many wait for it.
  int32_t waiting = 0;
};

// "rank 1 (worker 0 on b) stands still for 12 s in compute of step 7, and 1
// other rank waits for it; the gang is stopped and started again after 20 s at
// the earliest"; where all ranks wait, also that it is after the deadline where
// their nodes do not reach each other. `job` is the one that it is of.
std::string Describe(const Job& job, const Stall& stall);

class StallWatch {
 public:
  explicit StallWatch(StallOptions options = {}) : options_(options) {}

  // Forgets everything of older generations.
  void Reset(Generation generation);
  void Take(const RankStatus& said, MonoTime now);

  // How long a step may take.
  Duration Deadline() const;
  // Of a generation of `world_size` ranks: the one that holds the others up and
  // is nearest to its limit, or past it.
  std::optional<Stall> Standing(int32_t world_size, MonoTime now) const;
  // The same once it is past its limit: it is frozen.
  std::optional<Stall> Check(int32_t world_size, MonoTime now) const;
  // People were told of `stall` and its limit.
  void Told(const Stall& stall);

 private:
  struct Page {
    RankProgress progress;
    // Since when the page is as it is.
    MonoTime since;
    MonoTime heard;
    // CPU time as it was reported, over the last kCpuWindow.
    struct CpuSample {
      MonoTime time;
      double seconds = 0;
    };
    std::deque<CpuSample> cpu;

    bool UsesCpu() const;
  };

  const StallOptions options_;
  Generation generation_ = 0;
  std::map<int32_t, Page> pages_;
  // The largest limit that people were told since any rank has moved; 0: none.
  Duration told_{};
  // Of the newest steps, as they were seen: the reports' pace is the
  // resolution.
  std::deque<Duration> steps_;
  int64_t committed_ = -1;
  // When `committed_` rose; nullopt: not yet in this generation.
  std::optional<MonoTime> stepped_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_STALL_H_
