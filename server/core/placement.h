// Hosts as the scheduler sees them, and the places that it chooses. Plain
// values.
#ifndef LOCKSTEP_SERVER_CORE_PLACEMENT_H_
#define LOCKSTEP_SERVER_CORE_PLACEMENT_H_

#include <map>
#include <string>
#include <vector>

#include "common/model/job.h"
#include "common/model/node.h"

namespace lockstep::server {

// Where one task of a gang goes.
struct TaskPlacement {
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  NodeName node;
  std::vector<int32_t> gpus;
};

// What one job holds on a host.
struct Holder {
  JobName job;
  Resources resources;
};

struct HostCapacity {
  NodeName node;
  // Takes new work.
  bool ready = false;
  // Not ready because an operator drained it. It still counts for what can
  // ever fit.
  bool drained = false;
  Resources capacity;
  std::vector<Gpu> gpus;
  // Sum over all holds on it.
  Resources allocated;
  std::vector<int32_t> allocated_gpus;
  // The jobs that hold it. Used in messages only.
  std::vector<Holder> holders = {};
  // GPUs that get no new work: their driver does not answer for them, or
  // reported a fatal error. They still count for what can ever fit.
  std::vector<int32_t> bad_gpus;
  // As in NodeInfo.
  std::string container_engine;
  std::string pool;
  // Set if the node is not ready only because it failed jobs: until when it
  // cools down, and why, in words.
  std::string cooling = {};
  // Nodes that may not share a gang with this one, each with the reason in
  // words.
  std::map<NodeName, std::string> apart = {};
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_PLACEMENT_H_
