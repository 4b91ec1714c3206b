#include "server/service/initial_jobs.h"

#include <algorithm>
#include <utility>

namespace lockstep::server {
namespace {

int64_t NameBytes(const JobName& name) {
  return static_cast<int64_t>(sizeof(JobName) + 2 * sizeof(void*) +
                              name.size());
}

}  // namespace

void InitialJobs::Begin(std::vector<JobName> names, int64_t version) {
  for (JobName& name : names) {
    bytes_ += NameBytes(name);
    names_.push_back(std::move(name));
  }
  version_ = version;
}

std::optional<JobName> InitialJobs::Next() {
  if (names_.empty()) return std::nullopt;
  JobName name = std::move(names_.front());
  names_.pop_front();
  bytes_ -= NameBytes(name);
  return name;
}

void InitialJobs::OnSent(const JobName& job, int64_t version) {
  if (version <= *version_) return;
  sent_ahead_[job] = version;
  newest_ahead_ = std::max(newest_ahead_, version);
}

int64_t InitialJobs::End() { return *std::exchange(version_, std::nullopt); }

bool InitialJobs::Covers(const JobName& job, int64_t version) {
  if (version > newest_ahead_) sent_ahead_.clear();
  const auto ahead = sent_ahead_.find(job);
  return ahead != sent_ahead_.end() && version <= ahead->second;
}

}  // namespace lockstep::server
