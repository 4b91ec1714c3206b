#include "server/coordinator/prefetch_planner.h"

#include <algorithm>
#include <utility>

namespace lockstep::server {
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

std::vector<const Job*> PrefetchPlanner::JobsAhead(
    const std::map<JobName, Job>& changed) const {
  std::vector<const Job*> jobs;
  for (const QueuePlace& place : parts_.state->jobs.queued()) {
    if (jobs.size() >= parts_.options->jobs) break;
    if (changed.contains(place.job)) continue;
    const Job* job = parts_.state->jobs.At(place.job).job.get();
    if (!job->cancel_requested) jobs.push_back(job);
  }
  return jobs;
}

void PrefetchPlanner::TakeReport(const NodeName& node,
                                 std::vector<Prefetched> items) {
  NodeEntry& entry = parts_.state->nodes.At(node);
  const Prefetch asked = entry.session->prefetch.value_or(Prefetch());
  // What it was not asked for is not its to settle, or no longer.
  std::erase_if(items,
                [&](const Prefetched& item) { return !IsAsked(asked, item); });
  entry.prefetched = std::move(items);
  parts_.state->agenda.ahead_changed = true;
}

void PrefetchPlanner::Apply(Time now, std::map<JobName, Job>* changed) const {
  if (!parts_.state->agenda.ahead_changed) return;
  for (const Job* job : JobsAhead(*changed)) {
    if (!CanFetchAhead(job->spec)) continue;
    Job next = *job;
    for (const auto& [node, entry] : parts_.state->nodes.entries()) {
      if (entry.prefetched.empty()) continue;
      TakePrefetched(&next, entry.prefetched, node, now);
    }
    if (!(next == *job)) changed->emplace(next.spec.name, std::move(next));
  }
}

void PrefetchPlanner::Send() {
  if (!parts_.state->agenda.ahead_changed) return;
  parts_.state->agenda.ahead_changed = false;
  const std::vector<const Job*> jobs = JobsAhead({});
  std::map<NodeName, Prefetch> wanted;
  if (std::any_of(jobs.begin(), jobs.end(),
                  [](const Job* job) { return CanFetchAhead(job->spec); })) {
    wanted = PrefetchLists(jobs, parts_.scheduler->Hosts(), *parts_.options);
  }
  for (auto& [node, entry] : parts_.state->nodes.entries()) {
    if (!entry.session) continue;
    Prefetch& list = wanted[node];
    list.epoch = parts_.identity->epoch;
    if (entry.session->prefetch == list) continue;
    entry.session->link->SendPrefetch(list);
    entry.session->prefetch = std::move(list);
  }
}

}  // namespace lockstep::server
