#include "server/core/job_places.h"

#include <algorithm>

namespace lockstep::server {

JobPlaces::JobPlaces(const Job& job) {
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    tasks_[job.tasks[i].node].push_back(i);
  }
  for (size_t i = 0; i < job.holds.size(); ++i) {
    holds_[job.holds[i].node].push_back(i);
  }
}

const std::vector<size_t>& JobPlaces::On(const Index& index,
                                         const NodeName& node) const {
  const auto it = index.find(node);
  return it == index.end() ? none_ : it->second;
}

const std::vector<size_t>& JobPlaces::TasksOn(const NodeName& node) const {
  return On(tasks_, node);
}

const std::vector<size_t>& JobPlaces::HoldsOn(const NodeName& node) const {
  return On(holds_, node);
}

bool HasPartIn(const Job& job, const JobPlaces& places, const NodeName& node) {
  const bool released =
      std::any_of(job.replacements.begin(), job.replacements.end(),
                  [&](const Replacement& replacement) {
                    return replacement.from == node && replacement.released;
                  });
  return (!released && !places.TasksOn(node).empty()) ||
         std::any_of(job.replacements.begin(), job.replacements.end(),
                     [&](const Replacement& replacement) {
                       return replacement.to == node;
                     }) ||
         std::any_of(job.spares.begin(), job.spares.end(),
                     [&](const Spare& spare) { return spare.node == node; });
}

}  // namespace lockstep::server
