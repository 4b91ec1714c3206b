// What the images of a job are: the first node that has one says what its name
// stands for, and from then on all ranks of all attempts run that. And what
// nodes fetch ahead while a job waits. Pure.
#ifndef LOCKSTEP_SERVER_CORE_IMAGES_H_
#define LOCKSTEP_SERVER_CORE_IMAGES_H_

#include <map>
#include <vector>

#include "common/model/assignment.h"
#include "server/core/job.h"
#include "server/core/placement.h"

namespace lockstep {

// The settled content of those images that `spec` names; for SpecFor.
std::vector<ImageContent> SettledFor(const Job& job,
                                     const std::vector<LocalTask>& tasks);

// Settles those of `found` that are not, and says so in the history.
void SettleImages(Job* job, const std::vector<ImageContent>& found,
                  const NodeName& node, Time now);

// `gang` has, or does not say, what is settled: it may be launched.
bool HasSettledImages(const Job& job, const GangStatus& gang);

struct PrefetchOptions {
  // From the front of the queue.
  size_t jobs = 16;
  // Of one job, which may run on any of more.
  size_t nodes = 64;
  // On one node.
  size_t images = 8;
  size_t packages = 16;
};

// Whether anything of it can be fetched ahead.
bool CanFetchAhead(const JobSpec& spec);

// What each node should have, where that is anything: of the first jobs of
// `queue`, which is in its order, on the nodes where it was before, and then,
// by name, on those that take work and where one of its tasks would fit, were
// they empty. `epoch` is left 0.
std::map<NodeName, Prefetch> WhatToFetchAhead(
    const std::vector<const Job*>& queue, std::vector<HostCapacity> hosts,
    const PrefetchOptions& options);

// What `node` says of what it fetched, in a job that waits: settles images;
// what cannot be had is an event, once of each, and no more than a few.
void TakePrefetched(Job* job, const std::vector<Prefetched>& said,
                    const NodeName& node, Time now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_IMAGES_H_
