// What the coordinator wants of one node for one generation of a job. Pure
// values; see proto/lockstep/v1/worker.proto for the protocol.
#ifndef LOCKSTEP_COMMON_MODEL_ASSIGNMENT_H_
#define LOCKSTEP_COMMON_MODEL_ASSIGNMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/model/cluster_spec.h"
#include "common/model/job.h"
#include "common/model/node.h"

namespace lockstep {

struct LocalTask {
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  Resources resources;
  std::vector<int32_t> gpus;
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  std::vector<RankSpec> ranks;

  bool operator==(const LocalTask&) const = default;
};

struct GangSpec {
  JobKind kind = JobKind::kNative;
  std::vector<LocalTask> tasks;
  std::string output_directory;
  CheckpointPolicy checkpoint;
  std::vector<LineageEntry> lineage;
  int32_t attempt = 0;
  int32_t restart_count = 0;
  int32_t restart_budget = 0;
  std::string working_directory;
  std::string job_owner;

  bool operator==(const GangSpec&) const = default;
};

struct Assignment {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
  uint64_t epoch = 0;
  Goal goal = Goal::kPrepare;
  std::optional<GangSpec> spec;
  std::optional<ClusterSpec> cluster;
  std::string job_key;
  std::vector<Directive> directives;
  Duration grace{};
  std::string stop_message;

  bool operator==(const Assignment&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_ASSIGNMENT_H_
