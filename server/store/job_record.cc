#include "server/store/job_record.h"

#include <utility>

#include "common/wire/field_checker.h"
#include "server/store/record_fields.h"

namespace lockstep::server {
namespace {

StatusOr<Hold> GetHold(const v1::Hold& message) {
  Hold hold;
  hold.node = message.node();
  hold.generation = message.generation();
  LOCKSTEP_ASSIGN_OR_RETURN(hold.resources, FromProto(message.resources()));
  hold.gpus.assign(message.gpus().begin(), message.gpus().end());
  LOCKSTEP_ASSIGN_OR_RETURN(hold.since, FromProto(message.since()));
  if (message.has_fence()) {
    LOCKSTEP_ASSIGN_OR_RETURN(hold.fence, FromProto(message.fence()));
  }
  return hold;
}

// What is shown and changes often: all but the request, the plan, tasks,
// attempts and events.
void PutShownState(const Job& job, v1::Job* out) {
  out->set_uid(job.uid);
  out->set_resource_version(job.resource_version);
  out->set_owner(job.owner);
  *out->mutable_create_time() = ToProto(job.create_time);
  if (job.start_time) *out->mutable_start_time() = ToProto(*job.start_time);
  if (job.end_time) *out->mutable_end_time() = ToProto(*job.end_time);
  out->set_state(ToProto(job.state));
  *out->mutable_state_time() = ToProto(job.state_time);
  *out->mutable_cause() = ToProto(job.cause);
  out->set_generation(job.generation);
  out->set_attempt(job.attempt);
  out->set_failures_without_progress(job.failures_without_progress);
  out->set_restarts(job.restarts);
  out->set_recoveries(job.recoveries);
  for (const Spare& spare : job.spares) out->add_spare_nodes(spare.node);
  for (const auto& [state, duration] : job.phase_durations) {
    v1::PhaseDuration* phase = out->add_phases();
    phase->set_phase(std::string(PhaseName(state)));
    *phase->mutable_duration() = ToProto(duration);
  }
  if (job.last_checkpoint) {
    *out->mutable_last_checkpoint() = ToProto(*job.last_checkpoint);
  }
  if (job.committed_step) out->set_committed_step(*job.committed_step);
  for (const auto& [name, path] : job.artifacts) {
    (*out->mutable_artifacts())[name] = path;
  }
  *out->mutable_bill() = ToProto(job.bill);
  out->set_exit_code(job.exit_code);
  PutList(job.in_place_recoveries, out->mutable_in_place_recoveries());
  PutList(job.outputs, out->mutable_outputs());
  PutList(job.images, out->mutable_images());
  out->set_output_identity(job.output_identity);
  if (job.restore) *out->mutable_restore() = ToProto(*job.restore);
  out->set_wanted_tasks(job.wanted_tasks);
}

v1::Replacement PutReplacement(const Replacement& replacement) {
  v1::Replacement message;
  message.set_from(replacement.from);
  message.set_lost(replacement.lost);
  *message.mutable_cause() = ToProto(replacement.cause);
  *message.mutable_since() = ToProto(replacement.since);
  message.set_to(replacement.to);
  for (const std::vector<int32_t>& gpus : replacement.gpus) {
    message.add_gpus()->mutable_index()->Add(gpus.begin(), gpus.end());
  }
  for (const NodeName& node : replacement.refused) message.add_refused(node);
  if (replacement.to_since != WallTime{}) {
    *message.mutable_to_since() = ToProto(replacement.to_since);
  }
  message.set_released(replacement.released);
  message.set_held_back(replacement.held_back);
  return message;
}

StatusOr<Replacement> GetReplacement(const v1::Replacement& message) {
  Replacement replacement;
  replacement.from = message.from();
  replacement.lost = message.lost();
  LOCKSTEP_ASSIGN_OR_RETURN(replacement.cause, FromProto(message.cause()));
  LOCKSTEP_ASSIGN_OR_RETURN(replacement.since, FromProto(message.since()));
  replacement.to = message.to();
  for (const v1::Replacement::Gpus& gpus : message.gpus()) {
    replacement.gpus.emplace_back(gpus.index().begin(), gpus.index().end());
  }
  replacement.refused.assign(message.refused().begin(),
                             message.refused().end());
  if (message.has_to_since()) {
    LOCKSTEP_ASSIGN_OR_RETURN(replacement.to_since,
                              FromProto(message.to_since()));
  }
  replacement.released = message.released();
  replacement.held_back = message.held_back();
  return replacement;
}

v1::Resize PutResize(const Resize& resize) {
  v1::Resize message;
  message.set_tasks(resize.tasks);
  message.set_why(resize.why);
  if (resize.since) *message.mutable_since() = ToProto(*resize.since);
  return message;
}

StatusOr<Resize> GetResize(const v1::Resize& message) {
  Resize resize;
  resize.tasks = message.tasks();
  resize.why = message.why();
  if (message.has_since()) {
    LOCKSTEP_ASSIGN_OR_RETURN(resize.since, FromProto(message.since()));
  }
  return resize;
}

// The nodes beyond those of its tasks.
void PutNewNodes(const Job& job, v1::StoredJob* out) {
  for (const Replacement& replacement : job.replacements) {
    *out->add_replacements() = PutReplacement(replacement);
  }
  for (const Spare& spare : job.spares) {
    v1::Spare* const message = out->add_spares();
    message->set_node(spare.node);
    message->set_like(spare.like);
    for (const std::vector<int32_t>& gpus : spare.gpus) {
      message->add_gpus()->mutable_index()->Add(gpus.begin(), gpus.end());
    }
  }
  for (const NodeName& node : job.refused_spares) out->add_refused_spares(node);
}

Status GetNewNodes(const v1::StoredJob& stored, Job* job) {
  for (const v1::Replacement& message : stored.replacements()) {
    LOCKSTEP_ASSIGN_OR_RETURN(Replacement replacement, GetReplacement(message));
    job->replacements.push_back(std::move(replacement));
  }
  for (const v1::Spare& message : stored.spares()) {
    Spare& spare = job->spares.emplace_back();
    spare.node = message.node();
    spare.like = message.like();
    for (const v1::Replacement::Gpus& gpus : message.gpus()) {
      spare.gpus.emplace_back(gpus.index().begin(), gpus.index().end());
    }
  }
  job->refused_spares.assign(stored.refused_spares().begin(),
                             stored.refused_spares().end());
  return OkStatus();
}

// What was asked for.
void PutRequest(const Job& job, v1::Job* out) {
  *out->mutable_spec() = ToProto(job.spec);
  if (const auto& training = job.training.get(); training) {
    *out->mutable_training() = ToProto(*training);
  }
}

// All that is kept for decisions, but for the cluster spec and the holds.
void PutDecisionState(const Job& job, v1::StoredJob* out) {
  out->set_job_key(job.job_key);
  if (job.outcome) out->set_outcome(ToProto(*job.outcome));
  out->set_cancel_requested(job.cancel_requested);
  PutList(job.lineage, out->mutable_lineage());
  PutList(job.directives, out->mutable_directives());
  out->set_next_directive(job.next_directive);
  if (job.not_before) *out->mutable_not_before() = ToProto(*job.not_before);
  out->set_consecutive_failed_formings(job.failed_formings);
  for (const auto& [node, number] : job.event_numbers) {
    (*out->mutable_event_numbers())[node] = number;
  }
  for (const WallTime time : job.free_restarts) {
    *out->add_free_restarts() = ToProto(time);
  }
  for (const WallTime time : job.uncharged_failures) {
    *out->add_uncharged_failures() = ToProto(time);
  }
  for (const auto& [rank, lone] : job.lone_ranks) {
    v1::LoneRank& message = (*out->mutable_lone_ranks())[rank];
    message.set_waits(lone.waits);
    if (lone.start) *message.mutable_start() = ToProto(*lone.start);
    *message.mutable_before() = ToProto(lone.before);
    message.set_failures_away(lone.failures_away);
    if (lone.returned) *message.mutable_returned() = ToProto(*lone.returned);
  }
  if (job.failing) *out->mutable_failing() = ToProto(*job.failing);
  out->set_committed_before(job.committed_before);
  out->set_failure_signature(job.failure_signature);
  out->set_generation_floor(job.generation_floor);
  if (job.output_hold) {
    v1::OutputHold* hold = out->mutable_output_hold();
    hold->set_reason(ToProto(job.output_hold->reason));
    hold->set_looks(job.output_hold->looks);
    *hold->mutable_since() = ToProto(job.output_hold->since);
  }
  if (job.resize) *out->mutable_resize() = PutResize(*job.resize);
  out->set_recovery(job.recovery);
  if (job.recovery_start != WallTime{}) {
    *out->mutable_recovery_start() = ToProto(job.recovery_start);
  }
  PutNewNodes(job, out);
  if (job.attempt_start != WallTime{}) {
    *out->mutable_attempt_start() = ToProto(job.attempt_start);
  }
}

Status GetDecisionState(const v1::StoredJob& stored, Job* job) {
  if (stored.has_cluster()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->cluster, FromProto(stored.cluster()));
  }
  job->job_key = stored.job_key();
  if (stored.outcome() != v1::JOB_STATE_UNSPECIFIED) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->outcome, FromProto(stored.outcome()));
  }
  job->cancel_requested = stored.cancel_requested();
  LOCKSTEP_RETURN_IF_ERROR(GetList(stored.lineage(), &job->lineage));
  LOCKSTEP_RETURN_IF_ERROR(GetList(stored.directives(), &job->directives));
  job->next_directive = stored.next_directive();
  for (const v1::Hold& message : stored.holds()) {
    LOCKSTEP_ASSIGN_OR_RETURN(Hold hold, GetHold(message));
    job->holds.push_back(std::move(hold));
  }
  if (stored.has_not_before()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->not_before, FromProto(stored.not_before()));
  }
  job->failed_formings = stored.consecutive_failed_formings();
  for (const auto& [node, number] : stored.event_numbers()) {
    job->event_numbers[node] = number;
  }
  LOCKSTEP_RETURN_IF_ERROR(
      GetList(stored.free_restarts(), &job->free_restarts));
  LOCKSTEP_RETURN_IF_ERROR(
      GetList(stored.uncharged_failures(), &job->uncharged_failures));
  for (const auto& [rank, message] : stored.lone_ranks()) {
    LoneRank& lone = job->lone_ranks[rank];
    lone.waits = message.waits();
    if (message.has_start()) {
      LOCKSTEP_ASSIGN_OR_RETURN(lone.start, FromProto(message.start()));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(lone.before, FromProto(message.before()));
    lone.failures_away = message.failures_away();
    if (message.has_returned()) {
      LOCKSTEP_ASSIGN_OR_RETURN(lone.returned, FromProto(message.returned()));
    }
  }
  if (stored.has_failing()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->failing, FromProto(stored.failing()));
  }
  job->committed_before = stored.committed_before();
  job->failure_signature = stored.failure_signature();
  job->generation_floor = stored.generation_floor();
  if (stored.has_output_hold()) {
    const v1::OutputHold& message = stored.output_hold();
    OutputHold& hold = job->output_hold.emplace();
    LOCKSTEP_ASSIGN_OR_RETURN(hold.reason, FromProto(message.reason()));
    hold.looks = message.looks();
    LOCKSTEP_ASSIGN_OR_RETURN(hold.since, FromProto(message.since()));
  }
  if (stored.has_resize()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->resize, GetResize(stored.resize()));
  }
  job->recovery = stored.recovery();
  if (stored.has_recovery_start()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->recovery_start,
                              FromProto(stored.recovery_start()));
  }
  LOCKSTEP_RETURN_IF_ERROR(GetNewNodes(stored, job));
  if (stored.has_attempt_start()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->attempt_start,
                              FromProto(stored.attempt_start()));
  }
  return OkStatus();
}

Status GetShown(const v1::Job& message, Job* job) {
  LOCKSTEP_ASSIGN_OR_RETURN(job->spec, FromProto(message.spec()));
  job->uid = message.uid();
  job->owner = message.owner();
  job->resource_version = message.resource_version();
  LOCKSTEP_ASSIGN_OR_RETURN(job->create_time, FromProto(message.create_time()));
  if (message.has_start_time()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->start_time, FromProto(message.start_time()));
  }
  if (message.has_end_time()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->end_time, FromProto(message.end_time()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(job->state, FromProto(message.state()));
  LOCKSTEP_ASSIGN_OR_RETURN(job->state_time, FromProto(message.state_time()));
  LOCKSTEP_ASSIGN_OR_RETURN(job->cause, FromProto(message.cause()));
  job->generation = message.generation();
  job->attempt = message.attempt();
  job->failures_without_progress = message.failures_without_progress();
  job->restarts = message.restarts();
  job->recoveries = message.recoveries();
  for (const v1::PhaseDuration& phase : message.phases()) {
    for (const JobState state : kAllJobStates) {
      if (PhaseName(state) != phase.phase() || IsFinal(state)) continue;
      LOCKSTEP_ASSIGN_OR_RETURN(job->phase_durations[state],
                                FromProto(phase.duration()));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(GetList(message.tasks(), &job->tasks));
  LOCKSTEP_RETURN_IF_ERROR(GetList(message.attempts(), &job->attempts));
  if (message.has_last_checkpoint()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->last_checkpoint,
                              FromProto(message.last_checkpoint()));
  }
  if (message.has_committed_step()) {
    job->committed_step = message.committed_step();
  }
  for (const auto& [name, path] : message.artifacts()) {
    job->artifacts[name] = path;
  }
  LOCKSTEP_RETURN_IF_ERROR(GetList(message.events(), &job->events));
  LOCKSTEP_ASSIGN_OR_RETURN(job->bill, FromProto(message.bill()));
  job->exit_code = message.exit_code();
  if (message.has_training()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->training.Edit(),
                              FromProto(message.training()));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      GetList(message.in_place_recoveries(), &job->in_place_recoveries));
  LOCKSTEP_RETURN_IF_ERROR(GetList(message.outputs(), &job->outputs));
  LOCKSTEP_RETURN_IF_ERROR(GetList(message.images(), &job->images));
  job->reduction_plan = message.reduction_plan();
  job->output_identity = message.output_identity();
  if (message.has_restore()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->restore, FromProto(message.restore()));
  }
  job->wanted_tasks = message.wanted_tasks();
  return OkStatus();
}

}  // namespace

std::string_view Name(JobTable table) {
  switch (table) {
    case JobTable::kJobs:
      return "jobs";
    case JobTable::kTasks:
      return "tasks";
    case JobTable::kAttempts:
      return "attempts";
    case JobTable::kEvents:
      return "events";
    case JobTable::kHolds:
      return "holds";
  }
  return "";
}

std::string EncodePart(const Job& job, JobPart part) {
  v1::StoredJob stored;
  switch (part) {
    case JobPart::kState:
      PutShownState(job, stored.mutable_job());
      PutDecisionState(job, &stored);
      break;
    case JobPart::kSpec:
      PutRequest(job, stored.mutable_job());
      break;
    case JobPart::kCluster:
      *stored.mutable_cluster() = ToProto(*job.cluster);
      break;
    case JobPart::kPlan:
      stored.mutable_job()->set_reduction_plan(job.reduction_plan);
      break;
  }
  return stored.SerializeAsString();
}

std::string EncodeRow(const TaskStatus& task) {
  return ToProto(task).SerializeAsString();
}
std::string EncodeRow(const Attempt& attempt) {
  return ToProto(attempt).SerializeAsString();
}
std::string EncodeRow(const Event& event) {
  return ToProto(event).SerializeAsString();
}
std::string EncodeRow(const Hold& hold) {
  v1::Hold out;
  out.set_node(hold.node);
  out.set_generation(hold.generation);
  *out.mutable_resources() = ToProto(hold.resources);
  for (const int32_t gpu : hold.gpus) out.add_gpus(gpu);
  *out.mutable_since() = ToProto(hold.since);
  if (hold.fence) *out.mutable_fence() = ToProto(*hold.fence);
  return out.SerializeAsString();
}

Status AddRow(JobTable table, std::string_view record, v1::StoredJob* stored) {
  switch (table) {
    case JobTable::kJobs:
      return Merge(record, "job", stored);
    case JobTable::kTasks:
      return Merge(record, "task", stored->mutable_job()->add_tasks());
    case JobTable::kAttempts:
      return Merge(record, "attempt", stored->mutable_job()->add_attempts());
    case JobTable::kEvents:
      return Merge(record, "event", stored->mutable_job()->add_events());
    case JobTable::kHolds:
      return Merge(record, "hold", stored->add_holds());
  }
  return Internal("table {} has no rows of jobs", static_cast<int>(table));
}

StatusOr<Job> DecodeJob(const v1::StoredJob& stored) {
  const WithoutLimits reading;
  Job job;
  LOCKSTEP_RETURN_IF_ERROR(AsDataLoss(GetShown(stored.job(), &job), "job"));
  LOCKSTEP_RETURN_IF_ERROR(AsDataLoss(GetDecisionState(stored, &job), "job"));
  LOCKSTEP_RETURN_IF_ERROR(CheckNamed(job.spec.name, "job"));
  return job;
}

StatusOr<Job> DecodeJobOfSchema4(std::string_view bytes) {
  v1::StoredJob stored;
  LOCKSTEP_RETURN_IF_ERROR(Merge(bytes, "job", &stored));
  return DecodeJob(stored);
}

v1::Job ToJobMessage(const Job& job) {
  v1::Job out;
  out.set_name(job.spec.name);
  PutRequest(job, &out);
  PutShownState(job, &out);
  out.set_reduction_plan(job.reduction_plan);
  PutList(job.tasks, out.mutable_tasks());
  PutList(job.attempts, out.mutable_attempts());
  PutList(job.events, out.mutable_events());
  if (!job.lineage.empty() && job.lineage.back().start_step > 0) {
    out.set_resumed_step(job.lineage.back().start_step);
  }
  return out;
}

}  // namespace lockstep::server
