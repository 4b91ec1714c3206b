#include "worker/agent/stream/obeyed_point.h"

#include "common/base/logging.h"
#include "worker/agent/store/task_store.h"

namespace lockstep::worker::agent {

Status ObeyedPoint::Load() {
  LOCKSTEP_ASSIGN_OR_RETURN(saved_, LoadObeyed(files_, dir_));
  point_ = saved_;
  return OkStatus();
}

StatusOr<bool> ObeyedPoint::Obey(const WelcomeInfo& welcome) {
  const StorePoint said{welcome.history, welcome.epoch, 0, welcome.epoch_id};
  if (IsOutdated(said, welcome.replaced_histories, point_)) {
    const bool other = !said.history.empty() && !point_.history.empty() &&
                       said.history != point_.history;
    const std::string which =
        other ? fmt::format(
                    "of history {}, which does not replace history {} that "
                    "this node has followed",
                    said.history, point_.history)
              : fmt::format(
                    "of epoch {}, and this node has followed {}epoch {}",
                    said.epoch, said.epoch == point_.epoch ? "another " : "",
                    point_.epoch);
    return FailedPrecondition(
        "the coordinator is {}: it runs from an old copy of its store, or "
        "should no longer run. This node refuses its orders. If it is the "
        "right one, run `lockstep-coordinator accept-loss` on its directory; "
        "if this node has moved to another cluster, stop this daemon, remove "
        "{} and start it again",
        which, JoinPath(dir_, point_.history.empty() ? "epoch" : "obeyed"));
  }
  if (said.history != point_.history) point_.version = 0;
  if (!said.history.empty()) point_.history = said.history;
  // Another history may count from a lower epoch.
  const bool other_epoch = said.epoch != point_.epoch;
  point_.epoch = said.epoch;
  point_.epoch_id = said.epoch_id;
  Save();
  return other_epoch;
}

Status ObeyedPoint::CheckOrder(uint64_t epoch) const {
  if (epoch == point_.epoch) return OkStatus();
  // The coordinator differs from the one in its Welcome.
  return FailedPrecondition(
      "refused an order of epoch {}: the coordinator registered as epoch {}",
      epoch, point_.epoch);
}

void ObeyedPoint::Save() {
  if (point_.history == saved_.history && point_.epoch == saved_.epoch &&
      point_.epoch_id == saved_.epoch_id) {
    return;
  }
  if (const Status saved = SaveObeyed(files_, dir_, point_); saved.ok()) {
    saved_ = point_;
  } else {
    // A full disk must not part the node from its coordinator. Until it can be
    // written, this daemon knows, and its successor would not.
    LOG_ERROR("{}", Message(saved));
  }
}

void ObeyedPoint::NoteVersion(int64_t version) {
  if (version <= point_.version || point_.history.empty()) return;
  point_.version = version;
  if (const Status noted = NoteObeyedVersion(files_, dir_, point_);
      !noted.ok()) {
    LOG_ERROR("{}", Message(noted));
  }
}

}  // namespace lockstep::worker::agent
