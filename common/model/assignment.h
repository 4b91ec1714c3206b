// The coordinator's assignment to one node for one generation of a job. Pure
// values; proto/lockstep/v1/worker.proto documents the protocol.
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
  // If this exceeds the task's own count, its ranks, which have ended, restart
  // at the same address. The highest one of its ranks.
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
  // Each service gets a port on the node of rank 0.
  std::vector<std::string> services;
  // The images whose content is settled.
  std::vector<ImageContent> images = {};
  // The plan to use until LAUNCH. The user may have pinned it.
  std::string reduction_plan = {};
  bool reduction_plan_pinned = false;
  // The expected content of the output directory's identity file. If it is
  // empty, the node of rank 0 reads or makes the file.
  std::string output_identity = {};
  // The newest complete checkpoint of earlier generations that the coordinator
  // knows. If it is present, native ranks do not start from the beginning,
  // unless `restore` says so.
  std::optional<Checkpoint> known_checkpoint = {};
  std::optional<RestoreTarget> restore = {};
  // As in JobSpec.
  std::optional<Duration> stall_after = {};
  std::string progress_pattern = {};
  // The first one of a generation counts; GangStatus says what that was.
  std::optional<Fence> fence = {};
  // As in JobSpec; also set on a spare node of a program.
  bool warm_starts = false;

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
  // The store's version at the time of sending.
  int64_t version = 0;
  // The node captures evidence of its ranks when this rises; 0: not asked.
  uint32_t evidence = 0;
  // With STOP: evidence of what still runs is kept before the first signal.
  bool keep_evidence = false;
  // With GO: when it rises, ranks that can recover form a new communicator.
  uint32_t recovery = 0;
  // The ranks that are not members of that one, ascending.
  std::vector<int32_t> away_ranks;

  bool operator==(const Assignment&) const = default;
};

// Images and packages that a node should fetch for queued jobs.
struct Prefetch {
  uint64_t epoch = 0;
  // With id if the job's content is settled.
  std::vector<ImageContent> images;
  std::vector<Package> packages;

  bool operator==(const Prefetch&) const = default;
};

// A node's progress with one of them.
struct Prefetched {
  // Exactly one of the two is set, as in the request.
  std::optional<ImageContent> image;
  std::string package_digest;
  // The content of an image that is present.
  std::optional<ImageContent> content;
  bool ready = false;
  // The item was fetched in `duration`. False if it was already present.
  bool fetched = false;
  Duration duration{};
  // The error of the last attempt.
  std::string error;

  bool operator==(const Prefetched&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_ASSIGNMENT_H_
