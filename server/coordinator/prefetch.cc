// What nodes fetch ahead for the jobs that wait.

#include <algorithm>

#include "server/coordinator/coordinator.h"

namespace lockstep {
namespace {

bool IsAsked(const Prefetch& asked, const Prefetched& item) {
  if (item.image) {
    return std::any_of(asked.images.begin(), asked.images.end(),
                       [&](const ImageContent& image) {
                         return image.image == item.image->image &&
                                image.id == item.image->id &&
                                image.digest == item.image->digest;
                       });
  }
  return std::any_of(asked.packages.begin(), asked.packages.end(),
                     [&](const Package& package) {
                       return package.digest == item.package_digest;
                     });
}

}  // namespace

std::vector<const Job*> Coordinator::JobsAhead(
    const std::map<JobName, Job>& changed) {
  std::vector<const Job*> jobs;
  for (const QueuePlace& place : queued_) {
    if (jobs.size() >= options_.prefetch.jobs) break;
    if (changed.contains(place.job)) continue;
    const Job* job = jobs_.at(place.job).job.get();
    if (!job->cancel_requested) jobs.push_back(job);
  }
  return jobs;
}

void Coordinator::TakeAhead(Time now, std::map<JobName, Job>* changed) {
  if (!ahead_changed_) return;
  for (const Job* job : JobsAhead(*changed)) {
    if (!CanFetchAhead(job->spec)) continue;
    Job next = *job;
    for (const auto& [node, soft] : nodes_) {
      if (soft.prefetched.empty()) continue;
      TakePrefetched(&next, soft.prefetched, node, now);
    }
    if (!(next == *job)) changed->emplace(next.spec.name, std::move(next));
  }
}

void Coordinator::TellAhead() {
  if (!ahead_changed_) return;
  ahead_changed_ = false;
  const std::vector<const Job*> jobs = JobsAhead({});
  std::map<NodeName, Prefetch> wanted;
  if (std::any_of(jobs.begin(), jobs.end(),
                  [](const Job* job) { return CanFetchAhead(job->spec); })) {
    wanted = WhatToFetchAhead(jobs, Hosts(), options_.prefetch);
  }
  for (auto& [node, soft] : nodes_) {
    if (!soft.session) continue;
    Prefetch& list = wanted[node];
    list.epoch = epoch_;
    if (soft.session->prefetch == list) continue;
    soft.session->link->SendPrefetch(list);
    soft.session->prefetch = std::move(list);
  }
}

Status Coordinator::OnPrefetched(SessionId session,
                                 std::vector<Prefetched> items) {
  MutexLock lock(&mu_);
  // It is told anew what to fetch once it is welcome.
  if (IsNewcomer(session)) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, NodeOf(session));
  NodeSoft& soft = nodes_[node];
  const Prefetch asked = soft.session->prefetch.value_or(Prefetch());
  // What it was not asked for is not its to settle, or no longer.
  std::erase_if(items,
                [&](const Prefetched& item) { return !IsAsked(asked, item); });
  soft.prefetched = std::move(items);
  ahead_changed_ = true;
  Reconcile(clock_->Now());
  return OkStatus();
}

}  // namespace lockstep
