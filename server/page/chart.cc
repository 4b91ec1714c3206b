#include "server/page/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "common/model/resources.h"

namespace lockstep::server {
namespace {

using Line = HistoryPlot::Line;

// The height of a picture in its own units.
constexpr double kHeight = 100;
// Colours of curves and of strips in the style sheet.
constexpr size_t kCurveColours = 8;
// Those of areas begin after the curves' of their chart.
constexpr size_t kFirstArea = 2;
// Points of a strip.
constexpr size_t kHeatPoints = 96;

struct Range {
  double low = 0;
  double high = 0;
  double Y(double value) const {
    const double y = kHeight * (1 - (value - low) / (high - low));
    return std::clamp(y, 0.0, kHeight);
  }
};

// Line by line sums of the areas from the bottom; unknown where none is known.
std::vector<Line> Sums(const std::vector<ChartCurve>& stacked, size_t points) {
  std::vector<Line> sums;
  Line sum(points, kNoValue);
  for (const ChartCurve& curve : stacked) {
    for (size_t i = 0; i < points; ++i) {
      const float value = (*curve.line)[i];
      if (IsKnown(value)) sum[i] = IsKnown(sum[i]) ? sum[i] + value : value;
    }
    sums.push_back(sum);
  }
  return sums;
}

// False if nothing is known.
bool RangeOf(const Chart& chart, const std::vector<Line>& sums, Range* range) {
  std::vector<float> values;
  const auto take = [&](const Line& line) {
    std::copy_if(line.begin(), line.end(), std::back_inserter(values),
                 [](float value) { return std::isfinite(value); });
  };
  for (const ChartCurve& curve : chart.curves) take(*curve.line);
  for (const Line& line : sums) take(line);
  if (values.empty()) return false;
  std::sort(values.begin(), values.end());
  double low = values.front();
  double high = values.back();
  if (chart.cut_peaks) {
    // What is twice as large as all but 2 % is a peak.
    const double usual = values[(values.size() - 1) * 98 / 100];
    high = std::min(high, usual * 2);
  }
  if (chart.from_zero) low = std::min(low, 0.0);
  // Curves do not touch the frame.
  high += (high - low) * 0.05;
  if (chart.top > 0) high = std::max(values.back() + 0.0, chart.top);
  if (high <= low) high = low + (low == 0 ? 1 : std::abs(low) * 0.1);
  *range = {low, high};
  return true;
}

// Connects known values; a gap stays open.
std::string PathOf(const Line& line, const Range& range) {
  std::string path;
  bool open = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (!std::isfinite(line[i])) {
      open = false;
      continue;
    }
    const double x = static_cast<double>(i) + 0.5;
    const double y = range.Y(line[i]);
    // A value between two gaps is a dot.
    const bool alone =
        !open && (i + 1 == line.size() || !std::isfinite(line[i + 1]));
    path += fmt::format("{}{:g} {:.1f}", open ? 'L' : 'M', x, y);
    if (alone) path += "h.9";
    open = true;
  }
  return path;
}

// The area between two lines; `below` null: the bottom.
std::string AreaOf(const Line& line, const Line* below, const Range& range) {
  std::string path;
  for (size_t i = 0; i < line.size();) {
    if (!std::isfinite(line[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < line.size() && std::isfinite(line[end])) ++end;
    for (size_t at = i; at < end; ++at) {
      const double y = range.Y(line[at]);
      path += fmt::format("{}{} {:.1f}H{}", at == i ? 'M' : 'V',
                          at == i ? fmt::format("{}", at) : "", y, at + 1);
    }
    for (size_t at = end; at > i; --at) {
      const double low = below != nullptr && IsKnown((*below)[at - 1])
                             ? range.Y((*below)[at - 1])
                             : kHeight;
      path += fmt::format("V{:.1f}H{}", low, at - 1);
    }
    path += 'Z';
    i = end;
  }
  return path;
}

std::string_view ClassOf(ChartMark::Kind kind) {
  switch (kind) {
    case ChartMark::Kind::kRestart:
      return "m-restart";
    case ChartMark::Kind::kStall:
      return "m-stall";
    case ChartMark::Kind::kCheckpoint:
      break;
  }
  return "m-save";
}

void AddMarks(const ChartAxis& axis, double height, Html* html) {
  for (const auto kind : {ChartMark::Kind::kCheckpoint, ChartMark::Kind::kStall,
                          ChartMark::Kind::kRestart}) {
    std::string path;
    for (const ChartMark& mark : axis.marks) {
      if (mark.kind != kind || mark.time < axis.start) continue;
      const double x = ToSeconds(mark.time - axis.start) / ToSeconds(axis.step);
      if (x > static_cast<double>(axis.points)) continue;
      // A checkpoint is a short mark at the bottom.
      path += kind == ChartMark::Kind::kCheckpoint
                  ? fmt::format("M{:.1f} {:.1f}v{:.1f}", x, height * 0.9,
                                height * 0.1)
                  : fmt::format("M{:.1f} 0v{:.1f}", x, height);
    }
    if (path.empty()) continue;
    html->Raw(
        fmt::format("<path class=\"{}\" d=\"{}\"/>", ClassOf(kind), path));
  }
}

void BeginFigure(const std::string& title, Html* html) {
  html->Raw("<figure><figcaption>").Element("b", title);
}

void BeginPicture(const ChartAxis& axis, double units, double pixels,
                  Html* html) {
  html->Raw(
      fmt::format("<svg viewBox=\"0 0 {} {:g}\" height=\"{:g}\" "
                  "preserveAspectRatio=\"none\" aria-hidden=\"true\">",
                  axis.points, units, pixels));
}

// "14:03:20", with the day if the axis has several.
std::string ClockText(WallTime time, bool with_day) {
  const std::string text = FormatWallTime(time);
  return with_day ? text.substr(5, 5) + " " + text.substr(11, 5)
                  : text.substr(11, 8);
}

void AddTimes(const ChartAxis& axis, Html* html) {
  const Duration length = axis.step * static_cast<int64_t>(axis.points);
  const bool days = length > std::chrono::hours(20);
  html->Raw("<div class=\"times\">");
  for (const int part : {0, 1, 2}) {
    html->Element("span", ClockText(axis.start + length / 2 * part, days));
  }
  html->Raw("</div></figure>\n");
}

// The newest known value.
std::string NewestText(const Line& line, const ValueText& text) {
  for (size_t i = line.size(); i > 0; --i) {
    if (std::isfinite(line[i - 1])) return text(line[i - 1]);
  }
  return "unknown";
}

// The mean of every `merge` points.
Line Thinned(const Line& line, size_t merge) {
  Line out;
  for (size_t i = 0; i < line.size(); i += merge) {
    float sum = 0;
    int known = 0;
    for (size_t at = i; at < std::min(line.size(), i + merge); ++at) {
      if (!std::isfinite(line[at])) continue;
      sum += line[at];
      ++known;
    }
    out.push_back(known == 0 ? kNoValue : sum / static_cast<float>(known));
  }
  return out;
}

// One path for each colour over all rows.
std::array<std::string, kHeatColours> HeatPaths(const HeatStrips& strips,
                                                size_t merge, double top) {
  std::array<std::string, kHeatColours> paths;
  for (size_t row = 0; row < strips.rows.size(); ++row) {
    const Line line = Thinned(*strips.rows[row].line, merge);
    const auto colour = [&](size_t i) {
      if (i >= line.size() || !std::isfinite(line[i])) return -1;
      return std::clamp(
          static_cast<int>(std::lround(line[i] / top * (kHeatColours - 1))), 0,
          kHeatColours - 1);
    };
    for (size_t i = 0; i < line.size();) {
      size_t end = i + 1;
      while (end < line.size() && colour(end) == colour(i)) ++end;
      if (const int c = colour(i); c >= 0) {
        paths[static_cast<size_t>(c)] +=
            fmt::format("M{} {}.5h{}", i * merge, row, (end - i) * merge);
      }
      i = end;
    }
  }
  return paths;
}

struct RowMean {
  const HeatRow* row = nullptr;
  double mean = 0;
};

std::vector<RowMean> MeansOf(const HeatStrips& strips) {
  std::vector<RowMean> means;
  for (const HeatRow& row : strips.rows) {
    double sum = 0;
    int known = 0;
    for (const float value : *row.line) {
      if (!std::isfinite(value)) continue;
      sum += value;
      ++known;
    }
    if (known > 0) means.push_back({&row, sum / known});
  }
  std::stable_sort(
      means.begin(), means.end(),
      [](const RowMean& a, const RowMean& b) { return a.mean < b.mean; });
  return means;
}

}  // namespace

std::string PlainText(double value) {
  const double size = std::abs(value);
  if (size != 0 && (size < 0.001 || size >= 1e6)) {
    return fmt::format("{:.2e}", value);
  }
  return fmt::format("{:.4g}", value);
}

std::string BytesText(double value) {
  return FormatBytes(static_cast<int64_t>(std::max(0.0, value)));
}

std::string PercentText(double value) {
  return fmt::format("{:.0f} %", value * 100);
}

std::string TimeText(double seconds) {
  return FormatDuration(Seconds(seconds));
}

void AddChart(const Chart& chart, const ChartAxis& axis, Html* html) {
  const std::vector<Line> sums = Sums(chart.stacked, axis.points);
  Range range;
  if (axis.points == 0 || !RangeOf(chart, sums, &range)) return;
  BeginFigure(chart.title, html);
  const bool names =
      chart.names || chart.curves.size() > 1 || !chart.stacked.empty();
  for (const ChartCurve& curve : chart.curves) {
    html->Raw(
        fmt::format(" <span class=\"k c{}\">", curve.colour % kCurveColours));
    if (names) html->Text(curve.name + " ");
    html->Text(NewestText(*curve.line, chart.text)).Raw("</span>");
  }
  for (size_t i = 0; i < chart.stacked.size(); ++i) {
    html->Raw(fmt::format(" <span class=\"k a{}\">",
                          (i + kFirstArea) % kCurveColours))
        .Text(chart.stacked[i].name)
        .Raw("</span>");
  }
  html->Raw("</figcaption><div class=\"plot\">");
  html->Element("span", chart.text(range.high), "top");
  html->Element("span", chart.text(range.low), "low");
  BeginPicture(axis, kHeight, 110, html);
  for (size_t i = 0; i < sums.size(); ++i) {
    html->Raw(fmt::format(
        "<path class=\"a a{}\" d=\"{}\"/>", (i + kFirstArea) % kCurveColours,
        AreaOf(sums[i], i == 0 ? nullptr : &sums[i - 1], range)));
  }
  AddMarks(axis, kHeight, html);
  for (auto curve = chart.curves.rbegin(); curve != chart.curves.rend();
       ++curve) {
    html->Raw(fmt::format("<path class=\"l c{}\" d=\"{}\"/>",
                          curve->colour % kCurveColours,
                          PathOf(*curve->line, range)));
  }
  html->Raw("</svg></div>");
  AddTimes(axis, html);
}

void AddHeatStrips(const HeatStrips& strips, const ChartAxis& axis,
                   Html* html) {
  const std::vector<RowMean> means = MeansOf(strips);
  if (axis.points == 0 || means.empty()) return;
  double top = strips.top;
  if (top <= 0) {
    for (const HeatRow& row : strips.rows) {
      for (const float value : *row.line) {
        if (std::isfinite(value)) top = std::max<double>(top, value);
      }
    }
  }
  if (top <= 0) top = 1;
  BeginFigure(strips.title, html);
  html->Raw(" <span class=\"k\">")
      .Text(fmt::format("least {} {}, most {} {}", means.front().row->name,
                        strips.text(means.front().mean), means.back().row->name,
                        strips.text(means.back().mean)))
      .Raw("</span></figcaption><div class=\"plot\">");
  html->Element("span", strips.rows.front().name, "top");
  html->Element("span", strips.rows.back().name, "low");
  const auto rows = static_cast<double>(strips.rows.size());
  BeginPicture(axis, rows, std::clamp(rows * 14, 40.0, 260.0), html);
  const size_t merge = (axis.points + kHeatPoints - 1) / kHeatPoints;
  const auto paths = HeatPaths(strips, merge, top);
  for (int i = 0; i < kHeatColours; ++i) {
    const std::string& path = paths[static_cast<size_t>(i)];
    if (path.empty()) continue;
    html->Raw(fmt::format("<path class=\"h h{}\" d=\"{}\"/>", i, path));
  }
  AddMarks(axis, rows, html);
  html->Raw("</svg></div>");
  html->Raw("<div class=\"scale\">0 ");
  for (int i = 0; i < kHeatColours; ++i) {
    html->Raw(fmt::format("<i class=\"h{}\"></i>", i));
  }
  html->Text(" " + strips.text(top));
  if (!strips.note.empty()) html->Text("; " + strips.note);
  html->Raw("</div>");
  AddTimes(axis, html);
}

void AddMarkLegend(const ChartAxis& axis, Html* html) {
  struct Kind {
    ChartMark::Kind kind;
    const char* one;
    const char* many;
  };
  static constexpr Kind kKinds[] = {
      {ChartMark::Kind::kRestart, "restart", "restarts"},
      {ChartMark::Kind::kStall, "stall", "stalls"},
      {ChartMark::Kind::kCheckpoint, "checkpoint", "checkpoints"}};
  std::string legend;
  for (const Kind& kind : kKinds) {
    const auto count = std::count_if(
        axis.marks.begin(), axis.marks.end(), [&](const ChartMark& mark) {
          return mark.kind == kind.kind && mark.time >= axis.start;
        });
    if (count == 0) continue;
    legend +=
        fmt::format("<span class=\"k {}\">{} {}</span> ", ClassOf(kind.kind),
                    count, count == 1 ? kind.one : kind.many);
  }
  if (!legend.empty()) html->Raw("<p>" + legend + "</p>\n");
}

}  // namespace lockstep::server
