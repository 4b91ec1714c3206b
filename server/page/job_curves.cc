#include "server/page/job_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

namespace lockstep::server {
namespace {

using Line = HistoryPlot::Line;

// Strips of one figure.
constexpr size_t kRowsShown = 128;

constexpr std::array<std::string_view, kPhaseSeries> kPhaseNames = {
    "input",     "compute",    "all-reduce", "waiting for others",
    "optimizer", "checkpoint", "evaluation", "other",
    "compile"};

ChartAxis AxisOf(const HistoryPlot& plot) {
  return {plot.start, plot.step, plot.points, {}};
}

Chart ChartOf(std::string title, std::vector<ChartCurve> curves,
              ValueText text = PlainText) {
  Chart chart;
  chart.title = std::move(title);
  chart.text = std::move(text);
  chart.curves = std::move(curves);
  return chart;
}

void AddValues(const HistoryPlot& plot, const ChartAxis& axis, Html* html) {
  Chart loss = ChartOf("loss", {{"loss", &plot.Of(JobSeries::kLoss)}});
  loss.from_zero = false;
  AddChart(loss, axis, html);
  for (const auto& [name, line] : plot.values) {
    Chart chart = ChartOf(name, {{name, &line}});
    chart.from_zero = false;
    AddChart(chart, axis, html);
  }
}

void AddSpeed(const HistoryPlot& plot, const ChartAxis& axis, Html* html) {
  AddChart(ChartOf("samples per second",
                   {{"samples/s", &plot.Of(JobSeries::kSamplesPerSecond)}}),
           axis, html);
  AddChart(ChartOf("steps per second",
                   {{"steps/s", &plot.Of(JobSeries::kStepsPerSecond)}}),
           axis, html);
}

// The phases' shares of the median time of a step.
void AddStepTime(const HistoryPlot& plot, const ChartAxis& axis, Html* html) {
  const Line& median = plot.Of(JobSeries::kStepMedian);
  Chart chart =
      ChartOf("time of a step",
              {{"median", &median}, {"p99", &plot.Of(JobSeries::kStepP99), 1}},
              TimeText);
  std::array<Line, kPhaseSeries> phases;
  for (size_t p = 0; p < kPhaseSeries; ++p) {
    const Line& share = plot.job[kFirstPhase + p];
    if (std::none_of(share.begin(), share.end(),
                     [](float value) { return value > 0; })) {
      continue;
    }
    phases[p].resize(plot.points, kNoValue);
    for (size_t i = 0; i < plot.points; ++i) {
      if (IsKnown(share[i]) && IsKnown(median[i])) {
        phases[p][i] = share[i] * median[i];
      }
    }
    chart.stacked.push_back({std::string(kPhaseNames[p]), &phases[p]});
  }
  AddChart(chart, axis, html);
}

void AddOfRanks(const HistoryPlot& plot, const ChartAxis& axis,
                const std::string& what, RankSeries series, double top,
                const ValueText& text, Html* html) {
  HeatStrips strips;
  strips.title = what + " of each rank";
  strips.text = text;
  strips.top = top;
  for (const auto& [rank, lines] : plot.ranks) {
    if (strips.rows.size() == kRowsShown) break;
    strips.rows.push_back(
        {fmt::format("rank {}", rank), &lines[static_cast<size_t>(series)]});
  }
  if (plot.ranks.size() > kRowsShown) {
    strips.note = fmt::format("the first {} ranks", kRowsShown);
  }
  AddHeatStrips(strips, axis, html);
}

void AddUse(const HistoryPlot& plot, const ChartAxis& axis, Html* html) {
  const ValueText cores = [](double value) {
    return fmt::format("{:.2f} cores", value);
  };
  const ValueText speed = [](double value) { return BytesText(value) + "/s"; };
  const bool many = plot.ranks.size() > 1;
  const std::string all = many ? " of all ranks" : "";
  AddChart(ChartOf("CPU" + all, {{"CPU", &plot.Of(JobSeries::kCpu)}}, cores),
           axis, html);
  Chart gpu = ChartOf(many ? "GPUs, mean of all ranks" : "GPU",
                      {{"GPU", &plot.Of(JobSeries::kGpu)}}, PercentText);
  gpu.top = 1;
  AddChart(gpu, axis, html);
  AddChart(ChartOf("memory" + all, {{"memory", &plot.Of(JobSeries::kMemory)}},
                   BytesText),
           axis, html);
  AddChart(ChartOf("network" + all,
                   {{"network", &plot.Of(JobSeries::kNetwork)}}, speed),
           axis, html);
  if (!many) return;
  html->Raw("</div>\n<div class=\"plots\">\n");
  AddOfRanks(plot, axis, "CPU", RankSeries::kCpu, 0, cores, html);
  AddOfRanks(plot, axis, "GPU", RankSeries::kGpu, 1, PercentText, html);
  AddOfRanks(plot, axis, "memory", RankSeries::kMemory, 0, BytesText, html);
  AddOfRanks(plot, axis, "network", RankSeries::kNetwork, 0, speed, html);
}

bool IsStall(Reason reason) {
  return reason == Reason::kNoProgress || reason == Reason::kStalled;
}

}  // namespace

std::vector<ChartMark> MarksOf(const Job& job, const HistoryPlot& plot) {
  std::vector<ChartMark> marks;
  for (const Attempt& attempt : job.attempts) {
    // The last one of an ended job was not followed by another.
    if (attempt.ordinal < job.attempt) {
      marks.push_back({ChartMark::Kind::kRestart, attempt.end_time});
    }
  }
  for (const Event& event : job.events) {
    if (IsStall(event.reason)) {
      marks.push_back({ChartMark::Kind::kStall, event.time});
    }
  }
  for (const WallTime time : plot.checkpoints) {
    marks.push_back({ChartMark::Kind::kCheckpoint, time});
  }
  return marks;
}

void AddJobCurves(const Job& job, const HistoryPlot& plot, Html* html) {
  ChartAxis axis = AxisOf(plot);
  axis.marks = MarksOf(job, plot);
  AddMarkLegend(axis, html);
  html->Raw("<div class=\"plots\">\n");
  AddValues(plot, axis, html);
  AddSpeed(plot, axis, html);
  AddStepTime(plot, axis, html);
  AddUse(plot, axis, html);
  html->Raw("</div>\n");
}

void AddComparedCurves(const std::map<std::string, HistoryPlot>& plots,
                       Html* html) {
  if (plots.empty()) return;
  ChartAxis axis = AxisOf(plots.begin()->second);
  axis.start = {};
  const auto add =
      [&](const std::string& title, bool from_zero, const ValueText& text,
          double top,
          const std::function<const Line*(const HistoryPlot&)>& line_of) {
        Chart chart = ChartOf(title, {}, text);
        chart.from_zero = from_zero;
        chart.top = top;
        chart.names = true;
        size_t colour = 0;
        for (const auto& [job, plot] : plots) {
          if (const Line* line = line_of(plot)) {
            chart.curves.push_back({job, line, colour});
          }
          ++colour;
        }
        AddChart(chart, axis, html);
      };
  const auto of = [](JobSeries series) {
    return [series](const HistoryPlot& plot) {
      return plot.Has(series) ? &plot.Of(series) : nullptr;
    };
  };
  html->Raw("<div class=\"plots\">\n");
  add("loss", false, PlainText, 0, of(JobSeries::kLoss));
  std::set<std::string> names;
  for (const auto& [job, plot] : plots) {
    for (const auto& [name, line] : plot.values) names.insert(name);
  }
  for (const std::string& name : names) {
    add(name, false, PlainText, 0, [&](const HistoryPlot& plot) {
      const auto line = plot.values.find(name);
      return line == plot.values.end() ? nullptr : &line->second;
    });
  }
  add("samples per second", true, PlainText, 0,
      of(JobSeries::kSamplesPerSecond));
  add("steps per second", true, PlainText, 0, of(JobSeries::kStepsPerSecond));
  add("median time of a step", true, TimeText, 0, of(JobSeries::kStepMedian));
  add("CPU cores", true, PlainText, 0, of(JobSeries::kCpu));
  add("GPU", true, PercentText, 1, of(JobSeries::kGpu));
  add("memory", true, BytesText, 0, of(JobSeries::kMemory));
  html->Raw("</div>\n");
}

}  // namespace lockstep::server
