// Draws curves of a HistoryPlot as inline SVG, without script and with the
// page's style sheet. Pure. All text outside of names and sentences is trusted.
//
// Labels are HTML beside the picture, so they stay readable on a phone, where
// the picture is squeezed.
#ifndef LOCKSTEP_SERVER_PAGE_CHART_H_
#define LOCKSTEP_SERVER_PAGE_CHART_H_

#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "server/history/history_plot.h"
#include "server/page/html.h"

namespace lockstep::server {

// Something that happened, drawn as a line over all curves.
struct ChartMark {
  enum class Kind { kRestart, kStall, kCheckpoint };
  Kind kind = Kind::kRestart;
  WallTime time{};
};

// What all charts of a page share.
struct ChartAxis {
  WallTime start{};
  Duration step{};
  size_t points = 0;
  std::vector<ChartMark> marks;
};

struct ChartCurve {
  std::string name;
  const HistoryPlot::Line* line = nullptr;
  // Curves of one number have one colour on all charts.
  size_t colour = 0;
};

// "1.2 GiB", "0.031".
using ValueText = std::function<std::string(double)>;
std::string PlainText(double value);
std::string BytesText(double value);
std::string PercentText(double value);
std::string TimeText(double seconds);

struct Chart {
  std::string title;
  ValueText text = PlainText;
  // The picture begins at 0, not at the least value.
  bool from_zero = true;
  // The largest value that the picture has room for, at least.
  double top = 0;
  // The picture has no room for the few largest values, which it cuts.
  bool cut_peaks = false;
  // The names of curves are shown, even of a single one.
  bool names = false;
  std::vector<ChartCurve> curves = {};
  // Areas, each on top of the last one, below the curves.
  std::vector<ChartCurve> stacked = {};
};

// Adds a figure: title, newest values, curves, marks and times. Adds nothing if
// no value is known.
void AddChart(const Chart& chart, const ChartAxis& axis, Html* html);

struct HeatRow {
  std::string name;
  const HistoryPlot::Line* line = nullptr;
};

struct HeatStrips {
  std::string title;
  ValueText text = PlainText;
  // The value of the strongest colour. 0: the largest value.
  double top = 0;
  std::vector<HeatRow> rows;
  // What is not shown: "and 10 more ranks". May be empty.
  std::string note;
};

// Adds a figure with a thin strip for each row, in which a stronger colour is a
// larger value, and a sentence about the rows with the least and largest means.
void AddHeatStrips(const HeatStrips& strips, const ChartAxis& axis, Html* html);

// What the marks mean, with their numbers; nothing if there are none.
void AddMarkLegend(const ChartAxis& axis, Html* html);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_CHART_H_
