// Who is who in one generation, and what a rank's program is told of it.
// Pure values and functions.
#ifndef LOCKSTEP_COMMON_MODEL_CLUSTER_SPEC_H_
#define LOCKSTEP_COMMON_MODEL_CLUSTER_SPEC_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/model/job.h"

namespace lockstep {

struct RankSpec {
  int32_t rank = 0;
  int32_t local_rank = 0;
  std::vector<int32_t> gpus;
  // Of ranks that hold the whole model together.
  int32_t replica_group = 0;

  bool operator==(const RankSpec&) const = default;
};

struct TaskSpec {
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  NodeName node;
  // host:port.
  std::string address;
  std::vector<RankSpec> ranks;

  bool operator==(const TaskSpec&) const = default;
};

// The same on every host, never changed within its generation. Tasks are in
// rank order: chief, workers by index, then ps and evaluators, whose ranks are
// numbered after all others and do not count in world_size.
struct ClusterSpec {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
  // Ranks of chief and workers: those that all-reduce.
  int32_t world_size = 0;
  std::vector<TaskSpec> tasks;
  std::string master_address;
  int32_t master_port = 0;
  // Name -> address of what else the gang shares; kJaxService.
  std::map<std::string, std::string> services;
  // The job's.
  EnvironmentOptions environment_options;

  bool operator==(const ClusterSpec&) const = default;
};

// Where process 0 of jax.distributed listens.
inline constexpr std::string_view kJaxService = "jax";

// One text for one spec, whatever the order of maps: what spec hashes are made
// of.
std::string CanonicalText(const ClusterSpec& spec);

// What the gang's programs expect of their environment: TF_CONFIG
// (TensorFlow), RANK ... MASTER_PORT (torch.distributed env://). Every
// variable is complete before exec. ps and evaluators get no RANK,
// WORLD_SIZE, MASTER_*.
// REQUIRES: `rank` is a rank of `spec`.
std::map<std::string, std::string> RankEnvironment(const ClusterSpec& spec,
                                                   int32_t rank);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_CLUSTER_SPEC_H_
