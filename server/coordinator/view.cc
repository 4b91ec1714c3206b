// All that is shown of a cluster at one moment.

#include "server/coordinator/coordinator.h"

namespace lockstep {

CoordinatorView Coordinator::View(Duration linger) {
  MutexLock lock(&mu_);
  CoordinatorView view;
  view.time = clock_->Now();
  view.store_healthy = store_healthy_;
  view.prices = prices_;
  view.epoch = epoch_;
  view.refused_by = refused_by_;
  for (const JobState state : kAllJobStates) view.jobs_by_state[state] = 0;
  for (const auto& [name, entry] : jobs_) {
    const Job& job = *entry.job;
    ++view.jobs_by_state[job.state];
    if (IsFinal(job.state) &&
        (!job.end_time || view.time.wall - *job.end_time > linger)) {
      continue;
    }
    CoordinatorView::JobEntry shown;
    shown.snapshot = SnapshotOf(entry, view.time);
    shown.last_step = entry.meter.last_step_time();
    view.jobs.push_back(std::move(shown));
  }
  for (const auto& [name, member] : members_.members()) {
    view.nodes.push_back(SnapshotOf(member));
  }
  return view;
}

}  // namespace lockstep
