#include "client/cli/top.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/job_view.h"
#include "client/cli/output.h"
#include "client/cli/top_tables.h"
#include "client/lib/client.h"

namespace lockstep::cli {
namespace {

v1::PhaseSeconds Minus(const v1::PhaseSeconds& a, const v1::PhaseSeconds& b) {
  v1::PhaseSeconds d;
  d.set_input(std::max(0.0, a.input() - b.input()));
  d.set_compute(std::max(0.0, a.compute() - b.compute()));
  d.set_allreduce(std::max(0.0, a.allreduce() - b.allreduce()));
  d.set_straggler_wait(std::max(0.0, a.straggler_wait() - b.straggler_wait()));
  d.set_optimizer(std::max(0.0, a.optimizer() - b.optimizer()));
  d.set_checkpoint(std::max(0.0, a.checkpoint() - b.checkpoint()));
  d.set_evaluation(std::max(0.0, a.evaluation() - b.evaluation()));
  d.set_other(std::max(0.0, a.other() - b.other()));
  d.set_compile(std::max(0.0, a.compile() - b.compile()));
  return d;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

void TopState::Take(TopSample sample) {
  std::map<std::string, Seen> seen;
  for (const v1::Job& job : sample.jobs) {
    if (!job.has_progress()) continue;
    const v1::PhaseSeconds& total = job.progress().chief().phases();
    const uint64_t generation = job.progress().generation();
    Seen& now = seen[job.name()];
    now = {generation, total, total};
    const auto before = seen_.find(job.name());
    if (before == seen_.end() || before->second.generation != generation) {
      continue;
    }
    now.recent = Minus(total, before->second.total);
    // The status page was not read again meanwhile.
    if (SumOf(now.recent) <= 0) now.recent = before->second.recent;
  }
  seen_ = std::move(seen);
  sample_ = std::move(sample);
  trouble_.clear();
  empty_ = false;
}

v1::PhaseSeconds TopState::PhasesOf(const v1::Job& job) const {
  const auto at = seen_.find(job.name());
  return at == seen_.end() ? v1::PhaseSeconds() : at->second.recent;
}

std::string PhaseBar(const v1::PhaseSeconds& phases, int width) {
  // In the order of PhaseShares.
  static constexpr char kLetters[] = "crwiokem.";
  const auto shares = PhaseShares(phases);
  if (shares.empty() || width <= 0) {
    return std::string(static_cast<size_t>(std::max(0, width)), ' ');
  }
  std::vector<int> cells;
  std::vector<std::pair<int, size_t>> rests;
  int given = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const int exact = shares[i].second * width;
    cells.push_back(exact / 1000);
    given += cells.back();
    rests.emplace_back(-(exact % 1000), i);
  }
  std::sort(rests.begin(), rests.end());
  for (size_t i = 0; given < width; ++i, ++given) {
    ++cells[rests[i % rests.size()].second];
  }
  std::string bar;
  for (size_t i = 0; i < cells.size(); ++i) {
    bar.append(static_cast<size_t>(cells[i]), kLetters[i]);
  }
  return bar;
}

std::string Gauge(double ratio, int width) {
  if (!(ratio >= 0)) ratio = 0;
  const auto full = static_cast<size_t>(
      std::lround(std::min(ratio, 1.0) * static_cast<double>(width)));
  std::string bar(full, '#');
  bar.resize(static_cast<size_t>(width), ' ');
  return "[" + bar + "]";
}

namespace {

// The table of the screen. Marks a job.
std::string TopTableText(const TopState& state, TopView* view, int width,
                         WallTime now, const Style& style) {
  switch (view->screen) {
    case TopScreen::kNodes:
      return RenderTable(TopNodesTable(state, *view, now, style));
    case TopScreen::kRanks:
      return TopRanksText(state, *view);
    case TopScreen::kJobs:
      break;
  }
  const std::vector<std::string> names = TopJobNames(state, *view);
  view->selected = std::clamp(view->selected, 0,
                              std::max(0, static_cast<int>(names.size()) - 1));
  view->selected_job =
      names.empty() ? "" : names[static_cast<size_t>(view->selected)];
  return RenderTable(TopJobsTable(state, *view, width, now, style));
}

}  // namespace

std::vector<std::string> RenderTop(const TopState& state, TopView* view,
                                   int width, int height, WallTime now,
                                   const Style& style) {
  std::vector<std::string> lines = TopHeading(state, *view, now, style);
  std::vector<std::string> rows =
      Lines(TopTableText(state, view, width, now, style));
  std::string header = rows.empty() ? "" : rows[0];
  if (!rows.empty()) rows.erase(rows.begin());
  lines.push_back(style.Reverse(PadRight(
      Clip(header, static_cast<size_t>(width)), static_cast<size_t>(width))));
  // One line is reserved for the keys.
  const int room = std::max(0, height - static_cast<int>(lines.size()) - 1);
  const int most = std::max(0, static_cast<int>(rows.size()) - room);
  if (view->screen == TopScreen::kJobs) {
    // The marked row stays on the screen.
    view->scroll = std::clamp(view->scroll, view->selected - room + 1,
                              std::max(view->selected, 0));
  }
  view->scroll = std::clamp(view->scroll, 0, most);
  for (int i = 0; i < room; ++i) {
    const size_t at = static_cast<size_t>(view->scroll + i);
    std::string row = at < rows.size() ? rows[at] : "";
    if (view->screen == TopScreen::kJobs && !view->selected_job.empty() &&
        static_cast<int>(at) == view->selected) {
      row = style.Bold(row);
    }
    lines.push_back(std::move(row));
  }
  lines.push_back(TopKeys(*view, most, style));
  for (std::string& line : lines) {
    line = Clip(line, static_cast<size_t>(width));
  }
  // On a small screen the table is cut first, then the heading.
  lines.resize(
      std::min(lines.size(), static_cast<size_t>(std::max(0, height))));
  return lines;
}

std::string RenderTopBatch(const TopState& state, const TopView& view,
                           int width, WallTime now) {
  std::string text;
  for (const std::string& line : TopHeading(state, view, now, Style{})) {
    text += line + "\n";
  }
  TopView all = view;
  all.screen = TopScreen::kJobs;
  text += RenderTable(TopJobsTable(state, all, width, now, Style{}));
  all.screen = TopScreen::kNodes;
  return text + "\n" + RenderTable(TopNodesTable(state, all, now, Style{}));
}

std::string TopJson(const TopSample& sample) {
  using nlohmann::ordered_json;
  ordered_json jobs = ordered_json::array();
  for (const v1::Job& job : sample.jobs) {
    jobs.push_back(ordered_json::parse(ToJsonLine(job)));
  }
  ordered_json nodes = ordered_json::array();
  for (const v1::Node& node : sample.nodes) {
    nodes.push_back(ordered_json::parse(ToJsonLine(node)));
  }
  return ordered_json({{"time", FormatWallTime(sample.time)},
                       {"jobs", jobs},
                       {"nodes", nodes}})
             .dump() +
         "\n";
}

}  // namespace lockstep::cli
