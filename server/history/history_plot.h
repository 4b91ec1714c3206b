// What a job did over time, in equal steps: the form in which its history is
// read, stored and drawn. Plain values; pure.
#ifndef LOCKSTEP_SERVER_HISTORY_HISTORY_PLOT_H_
#define LOCKSTEP_SERVER_HISTORY_HISTORY_PLOT_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"

namespace lockstep::server {

// The series that every job has. A job that does not report one has no values.
enum class JobSeries {
  kStepsPerSecond,
  kSamplesPerSecond,
  // Seconds per step: median and 99th percentile of the last 60 measurements,
  // of which there is at most one a second.
  kStepMedian,
  kStepP99,
  // Share of the ranks' time, 0..1, in each phase that sessions report.
  kInput,
  kCompute,
  kAllReduce,
  kStragglerWait,
  kOptimizer,
  kCheckpoint,
  kEvaluation,
  kOther,
  kCompile,
  kLoss,
  // Of all ranks: cores, mean utilization 0..1, bytes, and bytes per second
  // sent and received.
  kCpu,
  kGpu,
  kMemory,
  kNetwork,
};
inline constexpr size_t kJobSeries = 18;
inline constexpr size_t kFirstPhase = static_cast<size_t>(JobSeries::kInput);
inline constexpr size_t kPhaseSeries = 9;
// The name in a file: "steps_per_second".
std::string_view Name(JobSeries series);

// A value that is not known.
inline constexpr float kNoValue = std::numeric_limits<float>::quiet_NaN();
inline bool IsKnown(float value) { return !std::isnan(value); }

// The series of a rank: cores, utilization 0..1 of its GPUs, bytes, and bytes
// per second sent and received.
enum class RankSeries { kCpu, kGpu, kMemory, kNetwork };
inline constexpr size_t kRankSeries = 4;
std::string_view Name(RankSeries series);

// Later ranks of a job have no series of their own.
inline constexpr int32_t kMaxRanksInHistory = 256;
// Values that a program reports, by name; later ones are dropped.
inline constexpr size_t kMaxValuesInHistory = 16;
inline constexpr size_t kMaxCheckpointsInHistory = 128;

struct HistoryPlot {
  using Line = std::vector<float>;

  // An empty one has no points.
  bool empty() const { return points == 0; }
  WallTime TimeOf(size_t point) const {
    return start + step * static_cast<int64_t>(point);
  }
  WallTime end() const { return TimeOf(points); }
  const Line& Of(JobSeries series) const {
    return job[static_cast<size_t>(series)];
  }
  // True if a value of the series is known.
  bool Has(JobSeries series) const;

  WallTime start{};
  Duration step{};
  size_t points = 0;
  // All lines have `points` values.
  std::array<Line, kJobSeries> job;
  std::map<std::string, Line> values;
  std::map<int32_t, std::array<Line, kRankSeries>> ranks;
  // Times at which a checkpoint was complete, ascending.
  std::vector<WallTime> checkpoints;
};

// True if a value of the line is known.
bool HasValue(const HistoryPlot::Line& line);

// Collects points of several sources into the equal steps of one plot. A bin
// has the mean of its points; a percentile the largest.
class PlotBuilder {
 public:
  // REQUIRES: from < to, points > 0.
  PlotBuilder(WallTime from, WallTime to, size_t points);

  // The bins of a point that lasts `length` from `time`. No bin: end == begin.
  struct Bins {
    size_t begin = 0;
    size_t end = 0;
  };
  Bins BinsOf(WallTime time, Duration length) const;

  void Add(const Bins& bins, JobSeries series, float value);
  void Add(const Bins& bins, const std::string& name, float value);
  void Add(const Bins& bins, int32_t rank, RankSeries series, float value);
  // Adds a point's time to the marks, unless it is outside.
  void AddCheckpoint(WallTime time);
  // Adds all points of `plot` that are before `until`.
  void Add(const HistoryPlot& plot, WallTime until);

  // Call it once.
  HistoryPlot Take();

 private:
  // The sum of a bin's values, or the largest, and their number.
  struct Line {
    std::vector<float> sums;
    std::vector<uint32_t> counts;
  };

  void Add(const Bins& bins, bool largest, float value, Line* line) const;
  HistoryPlot::Line Finish(const Line& line, bool largest) const;

  const WallTime from_;
  const Duration step_;
  const size_t points_;
  std::array<Line, kJobSeries> job_;
  std::map<std::string, Line> values_;
  std::map<int32_t, std::array<Line, kRankSeries>> ranks_;
  std::vector<WallTime> checkpoints_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_HISTORY_HISTORY_PLOT_H_
