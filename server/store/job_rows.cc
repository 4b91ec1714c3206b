#include "server/store/job_rows.h"

#include <utility>

namespace lockstep::server {
namespace {

// Whether one is a later version of the other.
bool AreVersions(const TaskStatus& a, const TaskStatus& b) {
  return a.type == b.type && a.index == b.index;
}
bool AreVersions(const Attempt& a, const Attempt& b) {
  return a.ordinal == b.ordinal;
}
bool AreVersions(const Event& a, const Event& b) { return a == b; }
bool AreVersions(const Hold& a, const Hold& b) {
  return a.node == b.node && a.generation == b.generation;
}

// Values leave a list anywhere and come at its end. Should one come elsewhere,
// all behind it are written anew.
template <typename T>
void AddListChanges(JobTable table, const std::vector<T>& before,
                    const std::vector<int64_t>& numbers,
                    const std::vector<T>& now, JobChanges* out) {
  std::vector<int64_t>& kept = out->numbers[table];
  kept.reserve(now.size());
  int64_t next = numbers.empty() ? 0 : numbers.back() + 1;
  size_t at = 0;
  for (const T& value : now) {
    size_t found = at;
    while (found < before.size() && !AreVersions(before[found], value)) ++found;
    for (; at < found; ++at) out->removed.push_back({table, numbers[at]});
    if (at == before.size()) {
      kept.push_back(next);
      out->written.push_back({table, next, EncodeRow(value), true});
      ++next;
      continue;
    }
    kept.push_back(numbers[at]);
    if (!(before[at] == value)) {
      out->written.push_back({table, numbers[at], EncodeRow(value), false});
    }
    ++at;
  }
  for (; at < before.size(); ++at) out->removed.push_back({table, numbers[at]});
}

bool HasPart(const Job& job, JobPart part) {
  switch (part) {
    case JobPart::kCluster:
      return job.cluster.has_value();
    case JobPart::kPlan:
      return !job.reduction_plan.empty();
    default:
      return true;
  }
}

bool IsSamePart(const Job& a, const Job& b, JobPart part) {
  switch (part) {
    case JobPart::kState:
      return false;
    case JobPart::kSpec:
      return a.spec == b.spec && a.training == b.training;
    case JobPart::kCluster:
      return a.cluster == b.cluster;
    case JobPart::kPlan:
      return a.reduction_plan == b.reduction_plan;
  }
  return false;
}

void AddPartChanges(const Job* before, const Job& now, JobChanges* out) {
  for (const JobPart part : kAllJobParts) {
    if (before != nullptr && IsSamePart(*before, now, part)) continue;
    const bool had = before != nullptr && HasPart(*before, part);
    const auto number = static_cast<int64_t>(part);
    if (HasPart(now, part)) {
      out->written.push_back(
          {JobTable::kJobs, number, EncodePart(now, part), !had});
    } else if (had) {
      out->removed.push_back({JobTable::kJobs, number});
    }
  }
}

}  // namespace

JobChanges ChangesOf(const StoredVersion* before, const Job& job) {
  static const StoredVersion nothing{std::make_shared<const Job>(), {}};
  static const std::vector<int64_t> no_rows;
  const StoredVersion& known = before == nullptr ? nothing : *before;
  JobChanges changes;
  AddPartChanges(before == nullptr ? nullptr : before->job.get(), job,
                 &changes);
  const auto compare = [&](JobTable table, const auto& old, const auto& now) {
    const auto numbers = known.numbers.find(table);
    AddListChanges(table, old,
                   numbers == known.numbers.end() ? no_rows : numbers->second,
                   now, &changes);
  };
  compare(JobTable::kTasks, known.job->tasks, job.tasks);
  compare(JobTable::kAttempts, known.job->attempts, job.attempts);
  compare(JobTable::kEvents, known.job->events, job.events);
  compare(JobTable::kHolds, known.job->holds, job.holds);
  return changes;
}

}  // namespace lockstep::server
