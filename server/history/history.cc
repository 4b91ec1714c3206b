#include "server/history/history.h"

#include <algorithm>

namespace lockstep::server {

bool History::MakeRoom(size_t needed) {
  while (bytes_ + needed > limits_.bytes) {
    const auto largest = std::max_element(
        jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
          return a.second.history.bytes() < b.second.history.bytes();
        });
    if (largest == jobs_.end()) return false;
    JobHistory& history = largest->second.history;
    const size_t before = history.bytes();
    if (!history.DropOldest()) return false;
    bytes_ -= before - history.bytes();
  }
  return true;
}

void History::Look(const CoordinatorView& view) {
  const NodeGpus gpus = GpusOf(view.nodes);
  for (const CoordinatorView::JobEntry& entry : view.jobs) {
    const JobSnapshot& snapshot = entry.snapshot;
    const JobState state = snapshot.job->state;
    if (state != JobState::kRunning && state != JobState::kFinishing) continue;
    Entry& job = jobs_[snapshot.job->uid];
    const JobSample sample = job.sampler.Take(snapshot, gpus);
    // Asked again, because making room may have taken a block of this job.
    size_t needed = 0;
    do {
      needed = job.history.Needs(view.time.wall, sample);
    } while (bytes_ + needed > limits_.bytes && MakeRoom(needed));
    if (bytes_ + needed > limits_.bytes) continue;
    const size_t before = job.history.bytes();
    job.history.Add(view.time.wall, sample);
    bytes_ = bytes_ - before + job.history.bytes();
  }
}

std::optional<WallTime> History::OldestOf(const std::string& uid) const {
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return std::nullopt;
  return job->second.history.oldest();
}

std::optional<WallTime> History::AddTo(const std::string& uid,
                                       PlotBuilder* builder) const {
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return std::nullopt;
  return job->second.history.AddTo(builder);
}

std::vector<std::string> History::Uids() const {
  std::vector<std::string> uids;
  for (const auto& [uid, entry] : jobs_) uids.push_back(uid);
  return uids;
}

void History::Forget(const std::string& uid) {
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return;
  bytes_ -= job->second.history.bytes();
  jobs_.erase(job);
}

}  // namespace lockstep::server
