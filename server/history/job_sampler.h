// Makes samples of a job's history from what its ranks and nodes report. Pure.
#ifndef LOCKSTEP_SERVER_HISTORY_JOB_SAMPLER_H_
#define LOCKSTEP_SERVER_HISTORY_JOB_SAMPLER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "server/coordinator/snapshot.h"
#include "server/history/history_plot.h"

namespace lockstep::server {

// A job at one time. What is not known is kNoValue.
struct JobSample {
  JobSample() { job.fill(kNoValue); }
  float& Of(JobSeries series) { return job[static_cast<size_t>(series)]; }

  std::array<float, kJobSeries> job;
  // At most kMaxValuesInHistory.
  std::map<std::string, float> values;
  struct Rank {
    int32_t rank = 0;
    std::array<float, kRankSeries> series{kNoValue, kNoValue, kNoValue,
                                          kNoValue};
  };
  // Those that run, ascending; at most kMaxRanksInHistory.
  std::vector<Rank> ranks;
  // Set when it is new.
  std::optional<WallTime> checkpoint;
};

// Utilization of each node's GPUs, by node and index.
using NodeGpus = std::map<NodeName, std::map<int32_t, float>>;
NodeGpus GpusOf(const std::vector<NodeSnapshot>& nodes);

class JobSampler {
 public:
  // Measures from the last call to this one. Snapshots of one job, in time
  // order.
  JobSample Take(const JobSnapshot& snapshot, const NodeGpus& gpus);

 private:
  // Of a rank: its last counters, and what came of them.
  struct Counters {
    // Cores and network are unknown if nothing new has come for a while.
    void TakeUsage(const Usage& usage, WallTime now);

    double cpu_seconds = 0;
    std::optional<int64_t> network_bytes;
    // The rank's age at its last reading, and when that came.
    double seconds = 0;
    WallTime heard{};
    float cores = kNoValue;
    float network = kNoValue;
    PhaseSeconds phases;
  };
  // A count of steps or samples, and its speed since it last changed.
  struct Meter {
    void Take(int64_t reached, WallTime now);
    // Unknown if it has not changed for far longer than before.
    float Rate(WallTime now) const;

    int64_t count = -1;
    WallTime changed{};
    Duration took{};
    double rate = 0;
  };

  void TakeSteps(const JobSnapshot& snapshot, JobSample* sample);
  void TakeRanks(const JobSnapshot& snapshot, const NodeGpus& gpus,
                 JobSample* sample);
  // Adds what the rank did in each phase since the last call.
  void TakeRank(const RankStatus& rank, WallTime now, JobSample::Rank* row,
                std::array<double, kPhaseSeries>* phases);

  Generation generation_ = 0;
  Meter steps_;
  Meter samples_;
  // Seconds per step, newest last.
  std::deque<float> step_times_;
  std::map<int32_t, Counters> ranks_;
  std::optional<WallTime> checkpoint_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_HISTORY_JOB_SAMPLER_H_
