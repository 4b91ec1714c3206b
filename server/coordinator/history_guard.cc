#include "server/coordinator/history_guard.h"

#include <fmt/ranges.h>

#include "common/base/logging.h"

namespace lockstep::server {
namespace {

constexpr size_t kMaxRefusedBy = 10'000;

}  // namespace

std::string HistoryGuard::LaterStore(const StorePoint& obeyed) const {
  const StoreIdentity& own = *identity_;
  // That epoch as it is known here.
  const auto begun = own.epoch_starts.find(obeyed.epoch);
  if (obeyed.history == own.history && begun != own.epoch_starts.end() &&
      !begun->second.id.empty() && !obeyed.epoch_id.empty() &&
      begun->second.id != obeyed.epoch_id) {
    return fmt::format("epoch {}, which was another one there", obeyed.epoch);
  }
  if (IsOutdated(own.At(writer_->version()), own.replaced_histories, obeyed)) {
    return obeyed.history.empty() || obeyed.history == own.history
               ? fmt::format("epoch {}", obeyed.epoch)
               : "history " + obeyed.history;
  }
  if (obeyed.history != own.history) return "";
  // The version with which that epoch ended here.
  const auto next = own.epoch_starts.find(obeyed.epoch + 1);
  const bool ended = obeyed.epoch < own.epoch;
  const bool later = ended ? next != own.epoch_starts.end() &&
                                 next->second.version < obeyed.version
                           : writer_->version() < obeyed.version;
  return later ? fmt::format("version {} of epoch {}", obeyed.version,
                             obeyed.epoch)
               : "";
}

Status HistoryGuard::CheckObeyed(const NodeName& node,
                                 const StorePoint& obeyed) {
  const std::string which = LaterStore(obeyed);
  if (which.empty()) return OkStatus();
  const Status refused = WithReason(
      FailedPrecondition(
          "node {} has obeyed a coordinator of {}, and this one is of epoch "
          "{}, version {}, history {}: it does not obey this one. Does another "
          "coordinator run, or is this one's store an old copy? See "
          "LockstepCoordinatorOutdated in the runbook",
          node, which, identity_->epoch, writer_->version(),
          identity_->history),
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

void HistoryGuard::Forget(const NodeName& node) {
  refused_by_.erase(node);
  unknown_nodes_.erase(node);
}

bool HistoryGuard::IsUnknown(const GangStatus& gang) const {
  if (gang.generation > identity_->generation_floor ||
      gang.phase == GangPhase::kStopped || gang.phase == GangPhase::kRefused) {
    return false;
  }
  const JobEntry* const entry = state_->jobs.Find(gang.job);
  // Of a deleted job everything was known.
  if (entry == nullptr) return !state_->jobs.IsDeleted(gang.job);
  const Job& job = *entry->job;
  return job.uid != gang.job_uid || gang.generation > job.generation;
}

bool HistoryGuard::EndsUnknown(const NodeName& node, Time now) const {
  const Member* const member = state_->members.Find(node);
  if (member == nullptr || !member->drain) return false;
  const std::optional<WallTime> deadline = member->drain->deadline();
  return deadline && *deadline <= now.wall;
}

std::vector<UnknownGang> HistoryGuard::UnknownOn(const NodeName& node) const {
  std::vector<UnknownGang> unknown;
  const NodeEntry* const entry = state_->nodes.Find(node);
  if (entry == nullptr) return unknown;
  for (const auto& [key, gang] : entry->gangs) {
    if (!IsUnknown(gang)) continue;
    unknown.push_back({gang.job, gang.job_uid, gang.generation});
  }
  return unknown;
}

std::optional<NodeName> HistoryGuard::FindUnknown(const JobName& job) const {
  for (const auto& [node, count] : unknown_nodes_) {
    for (const UnknownGang& gang : UnknownOn(node)) {
      if (gang.job == job) return node;
    }
  }
  return std::nullopt;
}

std::map<std::string, NodeName> HistoryGuard::UnknownUids() const {
  std::map<std::string, NodeName> uids;
  for (const auto& [node, count] : unknown_nodes_) {
    for (const UnknownGang& gang : UnknownOn(node)) {
      uids.emplace(gang.job_uid, node);
    }
  }
  return uids;
}

void HistoryGuard::NoteUnknown(const NodeName& node, Time now) {
  if (identity_->generation_floor == 0) return;
  std::vector<std::string> names;
  for (const UnknownGang& gang : UnknownOn(node)) {
    names.push_back(fmt::format("{} g{}", gang.job, gang.generation));
  }
  const auto before = unknown_nodes_.find(node);
  const size_t known = before == unknown_nodes_.end() ? 0 : before->second;
  if (known == names.size()) return;
  state_->agenda.capacity_changed = true;
  state_->agenda.ahead_changed = true;
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
  state_->members.Note(node, Reason::kNodeAhead, message, now.wall);
  state_->NoteNode(node);
}

void HistoryGuard::TouchUnknown() {
  for (const auto& [node, count] : unknown_nodes_) {
    state_->agenda.nodes.insert(node);
  }
}

}  // namespace lockstep::server
