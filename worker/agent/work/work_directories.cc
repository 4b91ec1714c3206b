#include "worker/agent/work/work_directories.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"

namespace lockstep::worker::agent {

WorkDirectories::WorkDirectories(const DaemonSetup* setup, EventLoop* loop,
                                 FileSystem* files, const CoreRunner* core,
                                 Removal* removal)
    : setup_(setup),
      loop_(loop),
      core_(core),
      removal_(removal),
      store_(files, setup->dir) {}

Status WorkDirectories::Make(const Assignment& assignment,
                             const LocalTask& task) {
  if (!assignment.spec->working_directory.empty()) return OkStatus();
  return store_
      .Make(assignment.job_uid, task.type, task.index, OwnerId(setup_->user),
            OwnerGroup(setup_->user))
      .status();
}

bool WorkDirectories::IsHere(const std::string& uid) const {
  const auto& gangs = core_->core().gangs();
  return std::any_of(gangs.begin(), gangs.end(), [&](const auto& entry) {
    return entry.second.status.job_uid == uid;
  });
}

void WorkDirectories::OnGangForgotten(const std::string& uid) {
  std::erase_if(unwanted_, [this](const std::string& unwanted) {
    if (IsHere(unwanted)) return false;
    Remove(unwanted);
    return true;
  });
  if (!uid.empty() && !IsHere(uid)) store_.Settle(uid);
}

void WorkDirectories::Drop(const std::vector<std::string>& uids) {
  for (const std::string& uid : uids) {
    if (!store_.jobs().contains(uid)) continue;
    if (IsHere(uid)) {
      unwanted_.insert(uid);  // Once its gangs are gone.
      continue;
    }
    Remove(uid);
  }
}

void WorkDirectories::Remove(const std::string& uid) {
  const auto aside = store_.SetAside(uid);
  if (aside.ok()) return removal_->RemoveAside(*aside);
  if (aside.status().code() != StatusCode::kNotFound) {
    LOG_WARN("{}", Message(aside.status()));
  }
}

void WorkDirectories::DropOldest() {
  if (dropping_) return;
  std::set<std::string> busy;
  for (const auto& [key, gang] : core_->core().gangs()) {
    busy.insert(gang.status.job_uid);
  }
  const auto oldest = store_.Oldest(busy, loop_->Now().wall);
  if (!oldest) return;
  const auto aside = store_.SetAside(*oldest);
  if (!aside.ok()) {
    LOG_WARN("{}", Message(aside.status()));
    return;
  }
  ++dropped_jobs_;
  LOG_WARN(
      "removed the working directories of job {}, the least recently used, "
      "because the disk of {} is nearly full",
      *oldest, setup_->dir);
  // One at a time: it may be enough.
  dropping_ = true;
  removal_->RemoveAside(*aside, lifetime_.Guard([this] { dropping_ = false; }));
}

}  // namespace lockstep::worker::agent
