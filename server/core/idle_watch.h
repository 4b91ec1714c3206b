// Finds jobs that hold resources and do no work: a program that has finished
// and sleeps, a session that its user forgot. Pure.
//
// A rank works when, in its reports,
//   - it used more than kCpuFloor of a core over kWindow,
//   - one of its GPUs was used more than kGpuFloor, or
//   - it shows progress: a step, a collective, a checkpoint, a step in its log
//     or a new file.
// A job is idle while none of its ranks works. Of a rank that does not report,
// and of a rank with GPUs that cannot be read, nothing is known: such a job is
// not idle. Traffic of disks and network is not looked at, so a program that
// only copies looks idle.
//
// JobSpec and the site say what follows: its history and its owner are told
// after one time, and it is saved and stopped after another.
#ifndef LOCKSTEP_SERVER_CORE_IDLE_WATCH_H_
#define LOCKSTEP_SERVER_CORE_IDLE_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "server/core/bill.h"

namespace lockstep::server {

// Absent: never.
struct IdlePolicy {
  std::optional<Duration> notice;
  std::optional<Duration> stop;

  bool operator==(const IdlePolicy&) const = default;
};

// The job's own times where it has some, else the site's. A job's 0 is never.
IdlePolicy IdlePolicyOf(const JobSpec& spec, const IdlePolicy& site);

// "no rank has worked for 30 m (less than 2 % of a core and of a GPU each);
// what it holds has cost 1.05 USD meanwhile; it is stopped after 2 h".
std::string Describe(const JobSpec& spec, const IdlePolicy& policy,
                     Duration idle, const Prices& prices);

class IdleWatch {
 public:
  static constexpr double kCpuFloor = 0.02;
  static constexpr double kGpuFloor = 0.02;
  static constexpr Duration kWindow = std::chrono::seconds(2);
  // A report that is older than this says nothing.
  static constexpr Duration kFresh = std::chrono::seconds(10);

  // Discards all data of older generations.
  void Reset(Generation generation);
  // `has_gpus`: the rank's task has GPUs.
  void Take(const RankStatus& report, bool has_gpus, MonoTime now);

  // Since when none of the `count` ranks without the `ended` ones works.
  // Absent: one works, or is not known.
  std::optional<MonoTime> IdleSince(int32_t count,
                                    const std::set<int32_t>& ended,
                                    MonoTime now) const;

 private:
  struct Rank {
    RankProgress progress;
    MonoTime worked;
    MonoTime reported;
    // The start of the window in which CPU time is measured.
    MonoTime window;
    double cpu_seconds = 0;
    bool gpus_unknown = false;
  };
  static bool ShowsProgress(const RankProgress& before,
                            const RankProgress& now);

  Generation generation_ = 0;
  std::map<int32_t, Rank> ranks_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_IDLE_WATCH_H_
