// An index of a job's tasks and holds by node. Pure.
#ifndef LOCKSTEP_SERVER_CORE_JOB_PLACES_H_
#define LOCKSTEP_SERVER_CORE_JOB_PLACES_H_

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "server/core/job.h"

namespace lockstep::server {

// Scanning all tasks for each node would be quadratic in a wide job. Valid
// until the job's tasks or holds change.
class JobPlaces {
 public:
  JobPlaces() = default;
  explicit JobPlaces(const Job& job);

  // Indices in Job::tasks and Job::holds, in order.
  const std::vector<size_t>& TasksOn(const NodeName& node) const;
  const std::vector<size_t>& HoldsOn(const NodeName& node) const;
  // Number of nodes with tasks.
  size_t nodes() const { return tasks_.size(); }

 private:
  using Index = std::unordered_map<NodeName, std::vector<size_t>>;
  const std::vector<size_t>& On(const Index& index, const NodeName& node) const;

  std::vector<size_t> none_;
  Index tasks_;
  Index holds_;
};

// Whether the current generation has tasks on the node that are not released,
// or will or may have some (Job::replacements, Job::spares). `places` are the
// job's.
bool HasPartIn(const Job& job, const JobPlaces& places, const NodeName& node);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_JOB_PLACES_H_
