#include "server/query/visibility.h"

#include <utility>

namespace lockstep::server {
namespace {

// Declared for the template below.
TaskStatus Shown(const TaskStatus& task);
Attempt Shown(const Attempt& attempt);
RoleSpec Shown(const RoleSpec& role);

Cause Shown(const Cause& cause) { return {cause.reason, ""}; }

InPlaceRecovery Shown(const InPlaceRecovery& recovery) {
  InPlaceRecovery out = recovery;
  out.cause = Shown(recovery.cause);
  return out;
}

Event Shown(const Event& event) {
  return {event.time, event.generation, event.reason, ""};
}

ExitStatus Shown(const ExitStatus& exit) {
  ExitStatus out;
  out.how = exit.how;
  out.value = exit.value;
  out.end_time = exit.end_time;
  out.victim = exit.victim;
  out.out_of_memory = exit.out_of_memory;
  out.reason = exit.reason;
  return out;
}

// Without the program's own measurements: loss and named values.
RankProgress Shown(const RankProgress& progress) {
  RankProgress out;
  out.step = progress.step;
  out.committed_step = progress.committed_step;
  out.total_steps = progress.total_steps;
  out.epoch = progress.epoch;
  out.samples = progress.samples;
  out.phases = progress.phases;
  out.allreduce_bytes = progress.allreduce_bytes;
  out.collectives = progress.collectives;
  out.skipped_steps = progress.skipped_steps;
  out.checkpoints = progress.checkpoints;
  out.straggler = progress.straggler;
  out.allreduce_busy_seconds = progress.allreduce_busy_seconds;
  out.signs = progress.signs;
  out.change_time = progress.change_time;
  out.collective_wait = progress.collective_wait;
  return out;
}

JobProgressInfo Shown(const JobProgressInfo& progress) {
  JobProgressInfo out;
  out.generation = progress.generation;
  out.chief = Shown(progress.chief);
  out.samples_per_second = progress.samples_per_second;
  out.steps_per_second = progress.steps_per_second;
  out.eta = progress.eta;
  out.time = progress.time;
  return out;
}

RankStatus Shown(const RankStatus& rank) {
  RankStatus out;
  out.rank = rank.rank;
  out.local_rank = rank.local_rank;
  out.state = rank.state;
  if (rank.exit) out.exit = Shown(*rank.exit);
  out.progress = Shown(rank.progress);
  out.usage = rank.usage;
  out.restarts = rank.restarts;
  out.recoverable = rank.recoverable;
  out.recovery = rank.recovery;
  out.parked = rank.parked;
  out.elastic = rank.elastic;
  out.away = rank.away;
  out.returned = rank.returned;
  return out;
}

template <typename T>
std::vector<T> Shown(const std::vector<T>& values) {
  std::vector<T> out;
  out.reserve(values.size());
  for (const T& value : values) out.push_back(Shown(value));
  return out;
}

// Without its address, which is for its peers, and its files.
TaskStatus Shown(const TaskStatus& task) {
  TaskStatus out;
  out.type = task.type;
  out.index = task.index;
  out.node = task.node;
  out.gpus = task.gpus;
  out.ranks = Shown(task.ranks);
  out.former_nodes = task.former_nodes;
  out.preparation.parts = task.preparation.parts;
  out.preparation.current = task.preparation.current;
  return out;
}

Attempt Shown(const Attempt& attempt) {
  Attempt out;
  out.ordinal = attempt.ordinal;
  out.generation = attempt.generation;
  out.start_time = attempt.start_time;
  out.end_time = attempt.end_time;
  out.end_cause = Shown(attempt.end_cause);
  out.resumed_step = attempt.resumed_step;
  out.tasks = Shown(attempt.tasks);
  return out;
}

Checkpoint Shown(const Checkpoint& checkpoint) {
  Checkpoint out = checkpoint;
  out.path.clear();
  return out;
}

RoleSpec Shown(const RoleSpec& role) {
  RoleSpec out;
  out.type = role.type;
  out.count = role.count;
  out.ranks_per_task = role.ranks_per_task;
  out.resources = role.resources;
  out.machine = role.machine;
  return out;
}

// Keeps counts, limits and priority, not the program.
JobSpec Shown(const JobSpec& spec) {
  JobSpec out;
  out.name = spec.name;
  out.kind = spec.kind;
  out.roles = Shown(spec.roles.get());
  out.checkpoint = spec.checkpoint;
  out.restart_budget = spec.restart_budget;
  out.max_running_time = spec.max_running_time;
  out.max_wait_time = spec.max_wait_time;
  out.priority = spec.priority;
  out.restart_worker_alone = spec.restart_worker_alone;
  out.pool = spec.pool;
  out.end_with = spec.end_with;
  out.end_grace = spec.end_grace;
  out.hang = spec.hang;
  out.stall_after = spec.stall_after;
  out.node_loss = spec.node_loss;
  out.node_lost_timeout = spec.node_lost_timeout;
  out.idle_notice = spec.idle_notice;
  out.idle_stop = spec.idle_stop;
  out.warm_starts = spec.warm_starts;
  out.spares = spec.spares;
  out.hold = spec.hold;
  out.elastic_min_tasks = spec.elastic_min_tasks;
  out.rescale = spec.rescale;
  return out;
}

ReplicaInput Shown(const ReplicaInput& replica) {
  ReplicaInput out;
  out.type = replica.type;
  out.count = replica.count;
  out.config.accelerator_config = replica.config.accelerator_config;
  out.config.disk_config = replica.config.disk_config;
  return out;
}

// Keeps the machines.
TrainingJob Shown(const TrainingJob& training) {
  const TrainingInput& input = training.training_input;
  TrainingJob out;
  out.job_id = training.job_id;
  out.training_input.scale_tier = input.scale_tier;
  out.training_input.region = input.region;
  out.training_input.master = Shown(input.master);
  out.training_input.worker = Shown(input.worker);
  out.training_input.parameter_server = Shown(input.parameter_server);
  out.training_input.evaluator = Shown(input.evaluator);
  return out;
}

Job Shown(const Job& job) {
  Job out;
  out.spec = Shown(job.spec);
  out.owner = job.owner;
  out.resource_version = job.resource_version;
  out.create_time = job.create_time;
  out.start_time = job.start_time;
  out.end_time = job.end_time;
  out.state = job.state;
  out.state_time = job.state_time;
  out.cause = Shown(job.cause);
  out.generation = job.generation;
  out.attempt = job.attempt;
  out.failures_without_progress = job.failures_without_progress;
  out.restarts = job.restarts;
  out.recoveries = job.recoveries;
  out.phase_durations = job.phase_durations;
  out.tasks = Shown(job.tasks);
  out.attempts = Shown(job.attempts);
  out.in_place_recoveries = Shown(job.in_place_recoveries);
  if (job.last_checkpoint) out.last_checkpoint = Shown(*job.last_checkpoint);
  out.committed_step = job.committed_step;
  out.events = Shown(job.events);
  out.bill = job.bill;
  out.exit_code = job.exit_code;
  if (job.training.get()) out.training.Edit() = Shown(*job.training.get());
  out.restore = job.restore;
  out.wanted_tasks = job.wanted_tasks;
  // Copies hidden fields that the visible ones depend on.
  if (job.failing) out.failing = Shown(*job.failing);
  out.outcome = job.outcome;
  out.lineage = job.lineage;
  out.lone_ranks = job.lone_ranks;
  out.recovery = job.recovery;
  out.recovery_start = job.recovery_start;
  out.replacements = job.replacements;
  out.spares = job.spares;
  out.refused_spares = job.refused_spares;
  return out;
}

}  // namespace

JobReader ReaderOf(std::string name, bool admin, Visibility visibility) {
  return {std::move(name), admin || visibility == Visibility::kCluster};
}

Status CheckSees(const JobReader& reader, const JobName& job,
                 std::string_view owner, std::string_view what) {
  if (reader.Sees(owner)) return OkStatus();
  return WithReason(
      PermissionDenied(
          "job {} belongs to {}: only the owner and admins may read its {}; "
          "`visibility: cluster` in the site's machines_file opens them to "
          "everybody",
          job, owner, what),
      "DETAILS_HIDDEN");
}

JobSnapshot ShownTo(const JobReader& reader, JobSnapshot snapshot) {
  if (reader.Sees(snapshot.job->owner)) return snapshot;
  JobSnapshot out;
  out.job = std::make_shared<const Job>(Shown(*snapshot.job));
  out.details_hidden = true;
  out.time = snapshot.time;
  if (snapshot.waiting) out.waiting = Shown(*snapshot.waiting);
  for (const auto& [number, rank] : snapshot.live) {
    out.live.emplace(number, Shown(rank));
  }
  if (snapshot.progress) out.progress = Shown(*snapshot.progress);
  out.bill = snapshot.bill;
  out.queue_position = snapshot.queue_position;
  out.expected_start = snapshot.expected_start;
  return out;
}

JobProgressInfo ShownTo(const JobReader& reader, std::string_view owner,
                        const JobProgressInfo& progress) {
  return reader.Sees(owner) ? progress : Shown(progress);
}

}  // namespace lockstep::server
