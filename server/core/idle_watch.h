// Finds jobs that hold resources and do no work: a program that has finished
// and sleeps, a session that its user forgot. Pure.
//
// A rank works when, in its reports,
//   - it used more than kCpuFloor of a core over kWindow,
//   - one of its GPUs was used more than kGpuFloor, or drew more than
//     kPowerFactor times the least that it drew while no rank had it,
//   - its network or its disks carried more than kTrafficFloor over
//     kTrafficWindow,
//   - its log grew by more than kLogFloor over kLogWindow: a line that says now
//     and then that it lives is no work, or
//   - it shows progress: a step, a collective, a checkpoint, a step in its log
//     or a new file.
// A GPU with a context that computes nothing draws more than one without, on
// some models by more than half: hence the factor. Power alone does not make up
// for a utilization that cannot be read.
// A job is idle while none of its ranks works. Of a rank that does not report,
// and of a rank with GPUs that cannot be read, nothing is known: such a job is
// not idle. Traffic that a daemon cannot tell is none.
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

// The GPUs of a rank's task now, as its node reads them.
struct GpusNow {
  // Absent: not all of them can be read.
  std::optional<double> utilization = std::nullopt;
  // The largest ratio of its power to the least that it drew without a rank.
  // Absent: one of the two is not known of any.
  std::optional<double> power_ratio = std::nullopt;
};

class IdleWatch {
 public:
  static constexpr double kCpuFloor = 0.02;
  static constexpr double kGpuFloor = 0.02;
  static constexpr double kPowerFactor = 2;
  // Bytes per second.
  static constexpr double kTrafficFloor = 64 << 10;
  static constexpr double kLogFloor = 64;
  static constexpr Duration kWindow = std::chrono::seconds(2);
  static constexpr Duration kTrafficWindow = std::chrono::seconds(10);
  static constexpr Duration kLogWindow = std::chrono::seconds(60);
  // A report that is older than this says nothing.
  static constexpr Duration kFresh = std::chrono::seconds(10);

  // Discards all data of older generations.
  void Reset(Generation generation);
  // `gpus` is absent if the rank's task has none.
  void Take(const RankStatus& report, const std::optional<GpusNow>& gpus,
            MonoTime now);

  // Since when none of the `count` ranks without the `ended` ones works.
  // Absent: one works, or is not known.
  std::optional<MonoTime> IdleSince(int32_t count,
                                    const std::set<int32_t>& ended,
                                    MonoTime now) const;

 private:
  // What a counter gains in windows of one length.
  struct Window {
    // Whether it gained more than `floor` a second in a window that ends now.
    bool Take(const std::optional<double>& total, Duration length, double floor,
              MonoTime now);

    std::optional<double> total;
    MonoTime begin;
  };
  struct Rank {
    RankProgress progress;
    MonoTime worked;
    MonoTime reported;
    double cpu_seconds = 0;
    Window cpu;
    Window network;
    Window disk;
    Window log;
    bool gpus_unknown = false;
  };
  static bool UsesMachine(const Usage& usage,
                          const std::optional<GpusNow>& gpus, MonoTime now,
                          Rank* rank);
  static bool ShowsProgress(const RankProgress& before,
                            const RankProgress& now);

  Generation generation_ = 0;
  std::map<int32_t, Rank> ranks_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_IDLE_WATCH_H_
