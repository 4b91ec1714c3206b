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
#include "common/model/restore_target.h"

namespace lockstep {

struct LocalTask {
  TaskType type = TaskType::kChief;
  int32_t index = 0;
  Resources resources;
  std::vector<int32_t> gpus;
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  std::vector<RankSpec> ranks;
  std::optional<Container> container = std::nullopt;
  // A higher number than the task's own starts its ranks, which have ended,
  // again, at their address.
  int32_t restarts = 0;

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
  std::vector<Package> packages;
  Runtime runtime;
  std::vector<std::string> inherited_environment;
  // A port is leased for each on the node of rank 0.
  std::vector<std::string> services;
  // Those of its images whose content is settled.
  std::vector<ImageContent> images = {};
  // Until LAUNCH: the one to use; a pinned one is the user's.
  std::string reduction_plan = {};
  bool reduction_plan_pinned = false;
  // What the identity file of the output directory must hold; empty: the node
  // of rank 0 reads it, or makes one.
  std::string output_identity = {};
  // The newest complete checkpoint of the generations before that the
  // coordinator knows of. Native ranks do not begin from the start where it is
  // present, unless `restore` says so.
  std::optional<Checkpoint> known_checkpoint = {};
  std::optional<RestoreTarget> restore = {};

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
  // Of the coordinator's store, when it was sent.
  int64_t version = 0;

  bool operator==(const Assignment&) const = default;
};

// All that a node should have at hand for jobs that wait.
struct Prefetch {
  uint64_t epoch = 0;
  // With id: of a job whose content is settled.
  std::vector<ImageContent> images;
  std::vector<Package> packages;

  bool operator==(const Prefetch&) const = default;
};

// How far a node is with one of them.
struct Prefetched {
  // As asked: one of the two.
  std::optional<ImageContent> image;
  std::string package_digest;
  // Of an image that is here: what it is.
  std::optional<ImageContent> content;
  bool ready = false;
  // It was not here before; `duration` is what that took.
  bool fetched = false;
  Duration duration{};
  // Why the last try failed.
  std::string error;

  bool operator==(const Prefetched&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_ASSIGNMENT_H_
