// The history of all running jobs in memory. Pure.
//
// At most HistoryLimits::bytes of points, whatever the number of jobs, ranks
// and values: beyond it the job that holds the most gives up its oldest block,
// so all keep their newest. The default, 128 MiB, has room for the whole span
// (job_history.h) of 32 jobs of 64 ranks, or of 170 of 4; of 500 jobs of 64
// ranks it keeps about 3 minutes at 1 s, half an hour at 15 s, and half a day
// at 5 minutes.
#ifndef LOCKSTEP_SERVER_HISTORY_HISTORY_H_
#define LOCKSTEP_SERVER_HISTORY_HISTORY_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "server/coordinator/snapshot.h"
#include "server/history/history_plot.h"
#include "server/history/job_history.h"
#include "server/history/job_sampler.h"

namespace lockstep::server {

struct HistoryLimits {
  size_t bytes = size_t{128} << 20;
};

class History {
 public:
  explicit History(HistoryLimits limits = {}) : limits_(limits) {}

  // Takes a sample of every job that runs. Views come in time order.
  void Look(const CoordinatorView& view);

  // The span of the job's points: nullopt if there are none.
  std::optional<WallTime> OldestOf(const std::string& uid) const;
  // Adds the job's points to `builder`. Returns the time of the oldest, or
  // nullopt.
  std::optional<WallTime> AddTo(const std::string& uid,
                                PlotBuilder* builder) const;

  // Uids of the jobs that have points.
  std::vector<std::string> Uids() const;
  void Forget(const std::string& uid);
  // The points' bytes; never more than the limit.
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    JobSampler sampler;
    JobHistory history;
  };

  // Makes room for `needed` bytes. Returns false if that is impossible.
  bool MakeRoom(size_t needed);

  const HistoryLimits limits_;
  // By uid.
  std::map<std::string, Entry> jobs_;
  size_t bytes_ = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_HISTORY_HISTORY_H_
