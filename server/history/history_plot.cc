#include "server/history/history_plot.h"

#include <algorithm>
#include <utility>

namespace lockstep::server {
namespace {

bool TakesLargest(JobSeries series) { return series == JobSeries::kStepP99; }

}  // namespace

std::string_view Name(JobSeries series) {
  static constexpr std::string_view kNames[kJobSeries] = {"steps_per_second",
                                                          "samples_per_second",
                                                          "step_median",
                                                          "step_p99",
                                                          "input",
                                                          "compute",
                                                          "allreduce",
                                                          "straggler_wait",
                                                          "optimizer",
                                                          "checkpoint",
                                                          "evaluation",
                                                          "other",
                                                          "compile",
                                                          "loss",
                                                          "cpu_cores",
                                                          "gpu_utilization",
                                                          "memory_bytes",
                                                          "network_bytes"};
  return kNames[static_cast<size_t>(series)];
}

std::string_view Name(RankSeries series) {
  static constexpr std::string_view kNames[kRankSeries] = {
      "cpu_cores", "gpu_utilization", "memory_bytes", "network_bytes"};
  return kNames[static_cast<size_t>(series)];
}

bool HasValue(const HistoryPlot::Line& line) {
  return std::any_of(line.begin(), line.end(), IsKnown);
}

bool HistoryPlot::Has(JobSeries series) const { return HasValue(Of(series)); }

PlotBuilder::PlotBuilder(WallTime from, WallTime to, size_t points)
    : from_(from),
      step_(std::max<Duration>(Duration(1),
                               (to - from) / static_cast<int64_t>(points))),
      points_(points) {}

PlotBuilder::Bins PlotBuilder::BinsOf(WallTime time, Duration length) const {
  const auto bin = [this](Duration since) {
    return static_cast<size_t>(
        std::clamp<int64_t>(since / step_, 0, static_cast<int64_t>(points_)));
  };
  const Duration since = time - from_;
  if (since + length <= Duration{} ||
      since >= step_ * static_cast<int64_t>(points_)) {
    return {};
  }
  Bins bins;
  bins.begin = bin(since);
  // A point belongs to the bin of its beginning, and to all that it fills.
  bins.end = std::max(bins.begin + 1, bin(since + length));
  return bins;
}

void PlotBuilder::Add(const Bins& bins, bool largest, float value,
                      Line* line) const {
  if (!IsKnown(value)) return;
  if (line->sums.empty()) {
    line->sums.resize(points_);
    line->counts.resize(points_);
  }
  for (size_t i = bins.begin; i < bins.end; ++i) {
    float& sum = line->sums[i];
    if (largest) {
      sum = line->counts[i] == 0 ? value : std::max(sum, value);
    } else {
      sum += value;
    }
    ++line->counts[i];
  }
}

void PlotBuilder::Add(const Bins& bins, JobSeries series, float value) {
  Add(bins, TakesLargest(series), value, &job_[static_cast<size_t>(series)]);
}

void PlotBuilder::Add(const Bins& bins, const std::string& name, float value) {
  auto line = values_.find(name);
  if (line == values_.end()) {
    if (values_.size() >= kMaxValuesInHistory) return;
    line = values_.emplace(name, Line{}).first;
  }
  Add(bins, false, value, &line->second);
}

void PlotBuilder::Add(const Bins& bins, int32_t rank, RankSeries series,
                      float value) {
  Add(bins, false, value, &ranks_[rank][static_cast<size_t>(series)]);
}

void PlotBuilder::AddCheckpoint(WallTime time) {
  if (time >= from_ && time < from_ + step_ * static_cast<int64_t>(points_)) {
    checkpoints_.push_back(time);
  }
}

void PlotBuilder::Add(const HistoryPlot& plot, WallTime until) {
  for (size_t i = 0; i < plot.points && plot.TimeOf(i) < until; ++i) {
    const Bins bins = BinsOf(plot.TimeOf(i), plot.step);
    if (bins.begin == bins.end) continue;
    for (size_t s = 0; s < kJobSeries; ++s) {
      Add(bins, static_cast<JobSeries>(s), plot.job[s][i]);
    }
    for (const auto& [name, line] : plot.values) Add(bins, name, line[i]);
    for (const auto& [rank, lines] : plot.ranks) {
      for (size_t s = 0; s < kRankSeries; ++s) {
        Add(bins, rank, static_cast<RankSeries>(s), lines[s][i]);
      }
    }
  }
  for (const WallTime time : plot.checkpoints) AddCheckpoint(time);
}

HistoryPlot::Line PlotBuilder::Finish(const Line& line, bool largest) const {
  HistoryPlot::Line out(points_, kNoValue);
  for (size_t i = 0; i < line.sums.size(); ++i) {
    const uint32_t count = line.counts[i];
    if (count == 0) continue;
    out[i] = largest ? line.sums[i] : line.sums[i] / static_cast<float>(count);
  }
  return out;
}

HistoryPlot PlotBuilder::Take() {
  HistoryPlot plot;
  plot.start = from_;
  plot.step = step_;
  plot.points = points_;
  for (size_t s = 0; s < kJobSeries; ++s) {
    plot.job[s] = Finish(job_[s], TakesLargest(static_cast<JobSeries>(s)));
  }
  for (const auto& [name, line] : values_) {
    plot.values[name] = Finish(line, false);
  }
  for (const auto& [rank, lines] : ranks_) {
    for (size_t s = 0; s < kRankSeries; ++s) {
      plot.ranks[rank][s] = Finish(lines[s], false);
    }
  }
  std::sort(checkpoints_.begin(), checkpoints_.end());
  checkpoints_.erase(std::unique(checkpoints_.begin(), checkpoints_.end()),
                     checkpoints_.end());
  plot.checkpoints = std::move(checkpoints_);
  return plot;
}

}  // namespace lockstep::server
