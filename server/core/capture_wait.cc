#include "server/core/capture_wait.h"

#include <algorithm>

#include "server/core/job.h"
#include "server/core/reports.h"

namespace lockstep::server {
namespace {

// Then there is nothing to capture, and the node does not answer.
bool HaveAllEnded(const std::vector<RankStatus>& ranks) {
  return !ranks.empty() &&
         std::all_of(ranks.begin(), ranks.end(), [](const RankStatus& rank) {
           return rank.exit.has_value();
         });
}

}  // namespace

void CaptureWait::Reset(Generation generation) {
  if (generation == generation_) return;
  *this = CaptureWait();
  generation_ = generation;
}

bool CaptureWait::Ask(Reason reason, const Job& job, const JobView& view,
                      MonoTime now) {
  if (asked_ && reason_ == reason) return false;
  asked_ = now;
  reason_ = reason;
  taken_ = false;
  for (const NodeName& node : NodesOf(job)) {
    const GangStatus* const gang = GangOf(view, node, job.generation);
    if (gang != nullptr) number_ = std::max(number_, gang->evidence_done);
  }
  ++number_;
  return true;
}

bool CaptureWait::IsOver(const Job& job, const JobView& view,
                         MonoTime now) const {
  if (!asked_) return false;
  if (now - *asked_ >= kLongest) return true;
  const std::set<NodeName> nodes = NodesOf(job);
  return std::all_of(nodes.begin(), nodes.end(), [&](const NodeName& node) {
    const GangStatus* const gang = GangOf(view, node, job.generation);
    return gang != nullptr &&
           (gang->evidence_done >= number_ || HaveAllEnded(gang->ranks));
  });
}

}  // namespace lockstep::server
