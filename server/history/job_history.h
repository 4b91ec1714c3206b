// The history of one running job in memory: rings of blocks at three
// resolutions. Pure.
//
//   1 s for 15 minutes, 15 s for a day, 5 minutes for a week
//
// A block has kBlockPoints points of all series: 4 bytes for a value of the
// job, 2 bytes (a float without its lower half, exact to 0.4 %) for one of a
// rank. A job with every series, with v reported values and r ranks, never has
// more than BytesBound(v, r): 4.0 MiB for 64 ranks and no values. History
// (history.h) bounds the sum over all jobs.
#ifndef LOCKSTEP_SERVER_HISTORY_JOB_HISTORY_H_
#define LOCKSTEP_SERVER_HISTORY_JOB_HISTORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "server/history/history_plot.h"
#include "server/history/job_sampler.h"

namespace lockstep::server {

inline constexpr size_t kBlockPoints = 60;

struct HistoryLevel {
  Duration step;
  // Complete blocks; one more is being filled.
  size_t blocks;
};
inline constexpr std::array<HistoryLevel, 3> kHistoryLevels = {{
    {std::chrono::seconds(1), 15},
    {std::chrono::seconds(15), 96},
    {std::chrono::minutes(5), 34},
}};

// The bytes of a block's points, and of all that a job may have.
size_t BlockBytes(size_t values, size_t ranks);
size_t BytesBound(size_t values, size_t ranks);

class JobHistory {
 public:
  JobHistory();

  // The bytes that Add allocates for this sample, or more.
  size_t Needs(WallTime now, const JobSample& sample) const;
  // Records a sample. `now` never goes back. Removes what is too old.
  void Add(WallTime now, const JobSample& sample);
  // Adds all points to `builder`: where resolutions overlap, the finest one.
  // Returns the time of the oldest point, or nullopt if there is none.
  std::optional<WallTime> AddTo(PlotBuilder* builder) const;
  // The time of the oldest point; nullopt: there is none.
  std::optional<WallTime> oldest() const;

  // The bytes of all blocks.
  size_t bytes() const { return bytes_; }
  // Removes the oldest block of the resolution that takes the most memory.
  // Returns false if there is none.
  bool DropOldest();

 private:
  // What the columns of a block are.
  struct Layout {
    // It has all columns of the sample.
    bool Has(const JobSample& sample) const;
    size_t columns() const { return kJobSeries + names.size(); }
    size_t rank_columns() const { return ranks.size() * kRankSeries; }

    std::vector<std::string> names;
    std::vector<int32_t> ranks;
  };
  struct Block {
    // The number of its first point: its time divided by the step.
    int64_t first = 0;
    std::shared_ptr<const Layout> layout;
    // By column; kBlockPoints each.
    std::vector<float> job;
    std::vector<uint16_t> ranks;
  };
  struct Level {
    // Of the point that is being filled.
    int64_t slot = -1;
    std::vector<float> sums;
    std::vector<uint16_t> counts;
    std::deque<Block> blocks;
  };

  bool NeedsBlock(size_t level, int64_t slot, bool same_layout) const;
  void AddTo(size_t level, int64_t slot, const JobSample& sample);
  // Extends the layout by the columns of the sample.
  void Extend(const JobSample& sample);
  void Mix(const JobSample& sample, Level* level) const;
  static void Read(const Block& block, Duration step, WallTime until,
                   PlotBuilder* builder);
  size_t BytesOf(const Block& block) const;
  void PopFront(Level* level);

  std::shared_ptr<const Layout> layout_;
  std::array<Level, kHistoryLevels.size()> levels_;
  std::deque<WallTime> checkpoints_;
  size_t bytes_ = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_HISTORY_JOB_HISTORY_H_
