// The members of one generation, and the environment of a rank's program. Pure
// values and functions.
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
  // The ranks of one replica group hold the whole model together.
  int32_t replica_group = 0;
  // In LocalTask only: how often it was restarted alone in this generation.
  int32_t restarts = 0;

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

// Identical on every host and constant within its generation. Tasks are in rank
// order: chief, workers by index, then ps and evaluators, whose ranks follow
// all others and do not count in world_size.
struct ClusterSpec {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
  // The number of chief and worker ranks, which take part in the all-reduce.
  int32_t world_size = 0;
  // world_size of the whole job, of one that may run with fewer tasks
  // (JobSpec::rescale). 0: of others.
  int32_t full_size = 0;
  std::vector<TaskSpec> tasks;
  std::string master_address;
  int32_t master_port = 0;
  // Name -> address of other services of the gang; kJaxService.
  std::map<std::string, std::string> services;
  // The job's.
  EnvironmentOptions environment_options;

  bool operator==(const ClusterSpec&) const = default;
};

// The address of process 0 of jax.distributed.
inline constexpr std::string_view kJaxService = "jax";

// Returns the canonical text of a spec, which spec hashes are computed from.
std::string CanonicalText(const ClusterSpec& spec);

// Returns the environment that the gang's programs expect: TF_CONFIG
// (TensorFlow), RANK ... MASTER_PORT (torch.distributed env://). Every variable
// is complete before exec. ps and evaluators get no RANK, WORLD_SIZE or
// MASTER_*. REQUIRES: `rank` is a rank of `spec`.
std::map<std::string, std::string> RankEnvironment(const ClusterSpec& spec,
                                                   int32_t rank);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_CLUSTER_SPEC_H_
