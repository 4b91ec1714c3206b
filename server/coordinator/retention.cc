#include "server/coordinator/retention.h"

#include <optional>

#include "common/base/logging.h"

namespace lockstep::server {
namespace {

constexpr Duration kSweepInterval = std::chrono::seconds(1);
// Deleted in one commit; the rest waits for the next sweep.
constexpr size_t kMaxDeletions = 50;

}  // namespace

std::vector<JobName> Retention::Outdated(WallTime now) const {
  const JobRegistry::Ended& ended = state_->jobs.ended();
  const size_t surplus =
      ended.size() > options_.job_count ? ended.size() - options_.job_count : 0;
  std::vector<JobName> names;
  for (const auto& [end, name] : ended) {
    if (names.size() == kMaxDeletions) break;
    if (now - end <= options_.jobs && names.size() >= surplus) break;
    names.push_back(name);
  }
  return names;
}

void Retention::Sweep(Time now) {
  if (!writer_->healthy() || now.mono - last_sweep_ < kSweepInterval) return;
  last_sweep_ = now.mono;
  const std::vector<JobName> names = Outdated(now.wall);
  if (!names.empty() && committer_->CommitDeletion(names, std::nullopt).ok()) {
    LOG_INFO("deleted {} jobs that ended long ago, from {}", names.size(),
             names.front());
  }
  // Without commands nothing else would forget what was answered.
  committer_->ForgetOldAnswers(now);
  std::erase_if(state_->nodes.entries(), [&](const auto& node) {
    const NodeEntry& entry = node.second;
    return state_->members.Find(node.first) == nullptr && entry.jobs.empty() &&
           entry.gangs.empty() && !entry.session;
  });
}

}  // namespace lockstep::server
