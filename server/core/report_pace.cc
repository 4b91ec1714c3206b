#include "server/core/report_pace.h"

#include <algorithm>

#include "server/core/elastic.h"

namespace lockstep::server {
namespace {

bool IsNews(const Job& job, const NodeName& node, const GangStatus& report) {
  if (report.phase == GangPhase::kRefused || job.tasks.empty() ||
      node == ChiefTask(job).node) {
    return true;
  }
  // Failures are expected while it is being stopped.
  if (job.failing || job.outcome) return false;
  return std::any_of(
      report.ranks.begin(), report.ranks.end(),
      [](const RankStatus& rank) { return rank.exit && !rank.exit->ok(); });
}

}  // namespace

void ReportPace::Reset(Generation generation, size_t nodes) {
  if (generation == generation_ && nodes == nodes_) return;
  *this = ReportPace();
  generation_ = generation;
  nodes_ = nodes;
  counts_[0] = nodes;
}

size_t ReportPace::LevelOf(const GangStatus& report) {
  switch (report.phase) {
    case GangPhase::kPreparing:
      return 1;
    case GangPhase::kPrepared:
      return 2;
    case GangPhase::kLaunched:
      break;
    case GangPhase::kStopping:
      return 5;
    default:
      return 6;
  }
  RankState least = RankState::kExited;
  for (const RankStatus& rank : report.ranks)
    least = std::min(least, rank.state);
  return 1 + static_cast<size_t>(least);
}

bool ReportPace::Raise(const NodeName& node, size_t level) {
  size_t& known = levels_.try_emplace(node, 0).first->second;
  if (known == level) return false;
  --counts_[known];
  known = level;
  ++counts_[known];
  return std::all_of(counts_.begin(),
                     counts_.begin() + static_cast<ptrdiff_t>(level),
                     [](size_t nodes) { return nodes == 0; });
}

bool ReportPace::Take(const Job& job, const NodeName& node,
                      const GangStatus& report) {
  const bool last = Raise(node, LevelOf(report));
  ++waiting_;
  return last || waiting_ >= nodes_ / kDecisions || IsNews(job, node, report);
}

}  // namespace lockstep::server
