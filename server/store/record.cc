#include "server/store/record.h"

#include "common/wire/field_checker.h"
#include "common/wire/job_wire.h"
#include "common/wire/training_wire.h"
#include "common/wire/value_wire.h"
#include "common/wire/worker_wire.h"

namespace lockstep {
namespace {

// proto3 repeated field <-> vector.
template <typename T, typename Repeated>
void Put(const std::vector<T>& values, Repeated* out) {
  for (const T& value : values) *out->Add() = ToProto(value);
}

template <typename T, typename Repeated>
Status Get(const Repeated& messages, std::vector<T>* out) {
  for (const auto& message : messages) {
    LOCKSTEP_ASSIGN_OR_RETURN(T value, FromProto(message));
    out->push_back(std::move(value));
  }
  return OkStatus();
}

void PutHold(const Hold& hold, v1::Hold* out) {
  out->set_node(hold.node);
  out->set_generation(hold.generation);
  *out->mutable_resources() = ToProto(hold.resources);
  for (const int32_t gpu : hold.gpus) out->add_gpus(gpu);
  *out->mutable_since() = ToProto(hold.since);
}

StatusOr<Hold> GetHold(const v1::Hold& message) {
  Hold hold;
  hold.node = message.node();
  hold.generation = message.generation();
  LOCKSTEP_ASSIGN_OR_RETURN(hold.resources, FromProto(message.resources()));
  hold.gpus.assign(message.gpus().begin(), message.gpus().end());
  LOCKSTEP_ASSIGN_OR_RETURN(hold.since, FromProto(message.since()));
  return hold;
}

void PutDecisionState(const Job& job, v1::StoredJob* out) {
  if (job.cluster) *out->mutable_cluster() = ToProto(*job.cluster);
  out->set_job_key(job.job_key);
  if (job.outcome) out->set_outcome(ToProto(*job.outcome));
  out->set_cancel_requested(job.cancel_requested);
  Put(job.lineage, out->mutable_lineage());
  Put(job.directives, out->mutable_directives());
  out->set_next_directive(job.next_directive);
  for (const Hold& hold : job.holds) PutHold(hold, out->add_holds());
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
  LOCKSTEP_RETURN_IF_ERROR(Get(stored.lineage(), &job->lineage));
  LOCKSTEP_RETURN_IF_ERROR(Get(stored.directives(), &job->directives));
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
  LOCKSTEP_RETURN_IF_ERROR(Get(stored.free_restarts(), &job->free_restarts));
  LOCKSTEP_RETURN_IF_ERROR(
      Get(stored.uncharged_failures(), &job->uncharged_failures));
  for (const auto& [rank, message] : stored.lone_ranks()) {
    LoneRank& lone = job->lone_ranks[rank];
    lone.waits = message.waits();
    if (message.has_start()) {
      LOCKSTEP_ASSIGN_OR_RETURN(lone.start, FromProto(message.start()));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(lone.before, FromProto(message.before()));
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
  for (const v1::PhaseDuration& phase : message.phases()) {
    for (const JobState state : kAllJobStates) {
      if (PhaseName(state) != phase.phase() || IsFinal(state)) continue;
      LOCKSTEP_ASSIGN_OR_RETURN(job->phase_durations[state],
                                FromProto(phase.duration()));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(Get(message.tasks(), &job->tasks));
  LOCKSTEP_RETURN_IF_ERROR(Get(message.attempts(), &job->attempts));
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
  LOCKSTEP_RETURN_IF_ERROR(Get(message.events(), &job->events));
  LOCKSTEP_ASSIGN_OR_RETURN(job->bill, FromProto(message.bill()));
  job->exit_code = message.exit_code();
  if (message.has_training()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->training.Edit(),
                              FromProto(message.training()));
  }
  LOCKSTEP_RETURN_IF_ERROR(Get(message.outputs(), &job->outputs));
  LOCKSTEP_RETURN_IF_ERROR(Get(message.images(), &job->images));
  job->reduction_plan = message.reduction_plan();
  job->output_identity = message.output_identity();
  if (message.has_restore()) {
    LOCKSTEP_ASSIGN_OR_RETURN(job->restore, FromProto(message.restore()));
  }
  return OkStatus();
}

// What it registered with.
StatusOr<NodeInfo> GetInfo(const v1::StoredNode& stored) {
  const v1::Node& node = stored.node();
  v1::Register registered;
  registered.set_node(node.name());
  registered.mutable_incarnation()->set_counter(node.incarnation());
  registered.mutable_incarnation()->set_nonce(stored.incarnation_nonce());
  registered.set_boot_id(node.boot_id());
  registered.set_hostname(node.hostname());
  registered.set_version(node.version());
  registered.set_address(node.address());
  registered.set_http_address(node.http_address());
  registered.set_http_tls(stored.http_tls());
  *registered.mutable_capacity() = node.capacity();
  *registered.mutable_gpus() = node.gpus();
  registered.set_limits_enforced(node.limits_enforced());
  registered.set_pool(node.pool());
  registered.set_limits_message(node.limits_message());
  registered.set_container_engine(node.container_engine());
  if (node.has_certificate_end_time()) {
    *registered.mutable_certificate_end_time() = node.certificate_end_time();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Registration registration, FromProto(registered));
  return std::move(registration.node);
}

Status GetNode(const v1::StoredNode& stored, NodeRecord* out) {
  const v1::Node& node = stored.node();
  LOCKSTEP_ASSIGN_OR_RETURN(out->info, GetInfo(stored));
  if (node.has_drain()) {
    Drain& drain = out->drain.emplace();
    drain.requester = node.drain().requester();
    drain.reason = node.drain().reason();
    LOCKSTEP_ASSIGN_OR_RETURN(drain.time, FromProto(node.drain().time()));
    if (stored.has_drain_grace()) {
      LOCKSTEP_ASSIGN_OR_RETURN(drain.grace, FromProto(stored.drain_grace()));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(Get(node.events(), &out->events));
  LOCKSTEP_RETURN_IF_ERROR(Get(node.missing_gpus(), &out->missing_gpus));
  LOCKSTEP_RETURN_IF_ERROR(Get(stored.withheld_gpus(), &out->withheld_gpus));
  if (stored.has_approved()) {
    LOCKSTEP_ASSIGN_OR_RETURN(out->approved,
                              FromProto(stored.approved(), "approved"));
  }
  if (node.has_offered()) {
    LOCKSTEP_ASSIGN_OR_RETURN(out->offered,
                              FromProto(node.offered(), "offered"));
  }
  if (node.has_state_time()) {
    LOCKSTEP_ASSIGN_OR_RETURN(out->state_time, FromProto(node.state_time()));
  }
  return OkStatus();
}

// The name is the row's key: nothing without one was ever stored.
Status CheckNamed(const std::string& name, std::string_view what) {
  return name.empty() ? DataLoss("a stored {} has no name", what) : OkStatus();
}

template <typename Message>
StatusOr<Message> Parse(std::string_view bytes, std::string_view what) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return DataLoss("a stored {} cannot be read", what);
  }
  return message;
}

// What was stored was valid once: if it is not now, the file is damaged.
Status AsDataLoss(const Status& status, std::string_view what) {
  return status.ok()
             ? status
             : DataLoss("a stored {} is damaged: {}", what, Message(status));
}

}  // namespace

v1::Job ToProto(const Job& job) {
  v1::Job out;
  out.set_name(job.spec.name);
  out.set_uid(job.uid);
  out.set_resource_version(job.resource_version);
  *out.mutable_spec() = ToProto(job.spec);
  out.set_owner(job.owner);
  *out.mutable_create_time() = ToProto(job.create_time);
  if (job.start_time) *out.mutable_start_time() = ToProto(*job.start_time);
  if (job.end_time) *out.mutable_end_time() = ToProto(*job.end_time);
  out.set_state(ToProto(job.state));
  *out.mutable_state_time() = ToProto(job.state_time);
  *out.mutable_cause() = ToProto(job.cause);
  out.set_generation(job.generation);
  out.set_attempt(job.attempt);
  out.set_failures_without_progress(job.failures_without_progress);
  out.set_restarts(job.restarts);
  for (const auto& [state, duration] : job.phase_durations) {
    v1::PhaseDuration* phase = out.add_phases();
    phase->set_phase(std::string(PhaseName(state)));
    *phase->mutable_duration() = ToProto(duration);
  }
  Put(job.tasks, out.mutable_tasks());
  Put(job.attempts, out.mutable_attempts());
  if (job.last_checkpoint) {
    *out.mutable_last_checkpoint() = ToProto(*job.last_checkpoint);
  }
  if (job.committed_step) out.set_committed_step(*job.committed_step);
  for (const auto& [name, path] : job.artifacts) {
    (*out.mutable_artifacts())[name] = path;
  }
  Put(job.events, out.mutable_events());
  *out.mutable_bill() = ToProto(job.bill);
  out.set_exit_code(job.exit_code);
  if (const auto& training = job.training.get(); training) {
    *out.mutable_training() = ToProto(*training);
  }
  Put(job.outputs, out.mutable_outputs());
  Put(job.images, out.mutable_images());
  out.set_reduction_plan(job.reduction_plan);
  out.set_output_identity(job.output_identity);
  if (job.restore) *out.mutable_restore() = ToProto(*job.restore);
  if (!job.lineage.empty() && job.lineage.back().start_step > 0) {
    out.set_resumed_step(job.lineage.back().start_step);
  }
  return out;
}

std::string EncodeJob(const Job& job) {
  v1::StoredJob stored;
  *stored.mutable_job() = ToProto(job);
  PutDecisionState(job, &stored);
  return stored.SerializeAsString();
}

StatusOr<Job> DecodeJob(std::string_view bytes) {
  const WithoutLimits reading;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stored,
                            Parse<v1::StoredJob>(bytes, "job"));
  Job job;
  LOCKSTEP_RETURN_IF_ERROR(AsDataLoss(GetShown(stored.job(), &job), "job"));
  LOCKSTEP_RETURN_IF_ERROR(AsDataLoss(GetDecisionState(stored, &job), "job"));
  LOCKSTEP_RETURN_IF_ERROR(CheckNamed(job.spec.name, "job"));
  return job;
}

v1::Node ToProto(const NodeRecord& node) {
  const NodeInfo& info = node.info;
  v1::Node out;
  out.set_name(info.name);
  out.set_hostname(info.hostname);
  out.set_address(info.address);
  out.set_http_address(info.http_address);
  out.set_version(info.version);
  out.set_boot_id(info.boot_id);
  out.set_incarnation(info.incarnation.counter);
  *out.mutable_capacity() = ToProto(info.capacity);
  for (const Gpu& gpu : info.gpus) *out.add_gpus() = ToProto(gpu);
  out.set_limits_enforced(info.limits_enforced);
  out.set_pool(info.pool);
  out.set_limits_message(info.limits_message);
  out.set_container_engine(info.container_engine);
  if (info.certificate_end_time) {
    *out.mutable_certificate_end_time() = ToProto(*info.certificate_end_time);
  }
  if (node.drain) {
    v1::Drain* drain = out.mutable_drain();
    drain->set_requester(node.drain->requester);
    drain->set_reason(node.drain->reason);
    *drain->mutable_time() = ToProto(node.drain->time);
    if (const auto deadline = node.drain->deadline()) {
      *drain->mutable_deadline() = ToProto(*deadline);
    }
  }
  Put(node.events, out.mutable_events());
  for (const Gpu& gpu : node.missing_gpus) {
    *out.add_missing_gpus() = ToProto(gpu);
  }
  if (node.offered) *out.mutable_offered() = ToProto(*node.offered);
  if (node.state_time != WallTime{}) {
    *out.mutable_state_time() = ToProto(node.state_time);
  }
  return out;
}

std::string EncodeNode(const NodeRecord& node) {
  v1::StoredNode stored;
  *stored.mutable_node() = ToProto(node);
  stored.set_incarnation_nonce(node.info.incarnation.nonce);
  stored.set_http_tls(node.info.http_tls);
  if (node.approved) *stored.mutable_approved() = ToProto(*node.approved);
  for (const Gpu& gpu : node.withheld_gpus) {
    *stored.add_withheld_gpus() = ToProto(gpu);
  }
  if (node.drain && node.drain->grace) {
    *stored.mutable_drain_grace() = ToProto(*node.drain->grace);
  }
  return stored.SerializeAsString();
}

StatusOr<NodeRecord> DecodeNode(std::string_view bytes) {
  const WithoutLimits reading;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stored,
                            Parse<v1::StoredNode>(bytes, "node"));
  NodeRecord node;
  LOCKSTEP_RETURN_IF_ERROR(AsDataLoss(GetNode(stored, &node), "node"));
  LOCKSTEP_RETURN_IF_ERROR(CheckNamed(node.info.name, "node"));
  return node;
}

StatusOr<NodeRecord> DecodeNodeOfSchema1(std::string_view bytes) {
  const WithoutLimits reading;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stored,
                            Parse<v1::Register>(bytes, "node"));
  auto registration = FromProto(stored);
  if (!registration.ok()) return AsDataLoss(registration.status(), "node");
  NodeRecord node;
  node.info = std::move(registration->node);
  LOCKSTEP_RETURN_IF_ERROR(CheckNamed(node.info.name, "node"));
  return node;
}

std::string EncodeRequest(const AnsweredRequest& request) {
  v1::StoredRequest stored;
  stored.set_client(request.client);
  stored.set_request_id(request.id);
  stored.set_method(request.method);
  stored.set_content_hash(request.content_hash);
  stored.set_response(request.response);
  *stored.mutable_time() = ToProto(request.time);
  return stored.SerializeAsString();
}

StatusOr<AnsweredRequest> DecodeRequest(std::string_view bytes) {
  const WithoutLimits reading;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stored,
                            Parse<v1::StoredRequest>(bytes, "request"));
  AnsweredRequest request;
  request.client = stored.client();
  request.id = stored.request_id();
  request.method = stored.method();
  request.content_hash = stored.content_hash();
  request.response = stored.response();
  LOCKSTEP_ASSIGN_OR_RETURN(request.time, FromProto(stored.time()));
  return request;
}

}  // namespace lockstep
