// A store that gave something up, and nodes that know more than it: who obeys,
// and what is left alone. See docs/design/coordinator.md, "The store's file".

#include <fmt/ranges.h>

#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"

namespace lockstep {
namespace {

constexpr size_t kMaxRefusedBy = 10'000;

}  // namespace

StorePoint Coordinator::point() {
  MutexLock lock(&mu_);
  return PointLocked();
}

StorePoint Coordinator::PointLocked() const {
  const auto own = epoch_starts_.find(epoch_);
  return {history_, epoch_, version_,
          own == epoch_starts_.end() ? std::string() : own->second.id};
}

Status Coordinator::CheckObeyed(const NodeName& node,
                                const StorePoint& obeyed) {
  MutexLock lock(&mu_);
  std::string which;
  // That epoch as it is known here.
  const auto begun = epoch_starts_.find(obeyed.epoch);
  if (obeyed.history == history_ && begun != epoch_starts_.end() &&
      !begun->second.id.empty() && !obeyed.epoch_id.empty() &&
      begun->second.id != obeyed.epoch_id) {
    which = fmt::format("epoch {}, which was another one there", obeyed.epoch);
  } else if (IsOutdated(PointLocked(), replaced_histories_, obeyed)) {
    which = obeyed.history.empty() || obeyed.history == history_
                ? fmt::format("epoch {}", obeyed.epoch)
                : "history " + obeyed.history;
  } else if (obeyed.history == history_) {
    // The version with which that epoch ended here.
    const auto next = epoch_starts_.find(obeyed.epoch + 1);
    const bool ended = obeyed.epoch < epoch_;
    if (ended ? next != epoch_starts_.end() &&
                    next->second.version < obeyed.version
              : version_ < obeyed.version) {
      which =
          fmt::format("version {} of epoch {}", obeyed.version, obeyed.epoch);
    }
  }
  if (which.empty()) return OkStatus();
  const Status refused = WithReason(
      FailedPrecondition(
          "node {} has obeyed a coordinator of {}, and this one is of epoch "
          "{}, version {}, history {}: it does not obey this one. Does another "
          "coordinator run, or is this one's store an old copy? See "
          "LockstepCoordinatorOutdated in the runbook",
          node, which, epoch_, version_, history_),
      "COORDINATOR_OUTDATED");
  const auto known = refused_by_.find(node);
  if (known == refused_by_.end() && refused_by_.size() >= kMaxRefusedBy) {
    return refused;
  }
  if (known == refused_by_.end() || known->second != which) {
    LOG_ERROR("{}", Message(refused));
  }
  refused_by_[node] = which;
  return refused;
}

bool Coordinator::IsUnknown(const GangStatus& gang) {
  if (gang.generation > generation_floor_ ||
      gang.phase == GangPhase::kStopped || gang.phase == GangPhase::kRefused) {
    return false;
  }
  const auto it = jobs_.find(gang.job);
  // Of a deleted job everything was known.
  if (it == jobs_.end()) return !deleted_.contains(gang.job);
  const Job& job = *it->second.job;
  return job.uid != gang.job_uid || gang.generation > job.generation;
}

bool Coordinator::EndsUnknown(const NodeName& node, Time now) {
  const Member* const member = members_.Find(node);
  if (member == nullptr || !member->drain) return false;
  const std::optional<WallTime> deadline = member->drain->deadline();
  return deadline && *deadline <= now.wall;
}

std::map<std::string, NodeName> Coordinator::UnknownUids() {
  std::map<std::string, NodeName> uids;
  for (const auto& [node, count] : unknown_nodes_) {
    for (const auto& [key, gang] : nodes_[node].gangs) {
      if (IsUnknown(gang)) uids.emplace(gang.job_uid, node);
    }
  }
  return uids;
}

void Coordinator::NoteUnknown(const NodeName& node, Time now) {
  if (generation_floor_ == 0) return;
  std::vector<std::string> names;
  for (const auto& [key, gang] : nodes_[node].gangs) {
    if (IsUnknown(gang)) {
      names.push_back(fmt::format("{} g{}", gang.job, gang.generation));
    }
  }
  const auto before = unknown_nodes_.find(node);
  const size_t known = before == unknown_nodes_.end() ? 0 : before->second;
  if (known == names.size()) return;
  capacity_changed_ = true;
  ahead_changed_ = true;
  std::string message;
  if (names.empty()) {
    unknown_nodes_.erase(node);
    message = "nothing runs here any more that the coordinator does not know";
  } else {
    unknown_nodes_[node] = names.size();
    message = fmt::format(
        "runs what the coordinator's store does not know: {}. It is left "
        "alone, "
        "and the node gets no new work, until that has ended",
        fmt::join(names, ", "));
  }
  LOG_WARN("node {}: {}", node, message);
  members_.Note(node, Reason::kNodeAhead, message, now.wall);
  NoteNode(node);
}

}  // namespace lockstep
