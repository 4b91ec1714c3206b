// The images of a job. The first node that has an image reports the content
// that its name resolves to. From then on all ranks of all attempts run that
// content. Also what nodes prefetch while a job waits. Pure.
#ifndef LOCKSTEP_SERVER_CORE_IMAGES_H_
#define LOCKSTEP_SERVER_CORE_IMAGES_H_

#include <map>
#include <vector>

#include "common/model/assignment.h"
#include "server/core/job.h"
#include "server/core/placement.h"

namespace lockstep::server {

// Returns the settled content of the images that `tasks` name; for SpecFor.
std::vector<ImageContent> SettledFor(const Job& job,
                                     const std::vector<LocalTask>& tasks);

// Settles each image of `found` that is not settled yet, with an event.
void SettleImages(Job* job, const std::vector<ImageContent>& found,
                  const NodeName& node, Time now);

// Whether `gang` may be launched: it has the settled images, or does not report
// its images.
bool HasSettledImages(const Job& job, const GangStatus& gang);

struct PrefetchOptions {
  // Number of jobs, from the front of the queue.
  size_t jobs = 16;
  // Most nodes for one job, which may fit on more.
  size_t nodes = 64;
  // Most images and packages on one node.
  size_t images = 8;
  size_t packages = 16;
};

// Whether the job names anything that can be prefetched.
bool CanFetchAhead(const JobSpec& spec);

// Returns what each node should prefetch; nodes without work are absent.
// `queue` is in queue order; its first jobs count. A job's nodes are those
// where it was before, then, by name, those that take work and that would fit
// one of its tasks if they were empty. `epoch` stays 0.
std::map<NodeName, Prefetch> PrefetchLists(const std::vector<const Job*>& queue,
                                           std::vector<HostCapacity> hosts,
                                           const PrefetchOptions& options);

// Records a node's prefetch report in a waiting job. Settles images. Each
// failed fetch becomes one event, up to a small number.
void TakePrefetched(Job* job, const std::vector<Prefetched>& report,
                    const NodeName& node, Time now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_IMAGES_H_
