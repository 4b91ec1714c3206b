#include "server/service/messages.h"

#include <algorithm>

#include "common/wire/gpu_check_wire.h"
#include "common/wire/job_wire.h"
#include "common/wire/training_wire.h"
#include "common/wire/value_wire.h"
#include "server/store/job_record.h"
#include "server/store/record.h"

namespace lockstep::server {

v1::JobProgress ToMessage(const JobName& job, const JobProgressInfo& progress) {
  v1::JobProgress out;
  out.set_job(job);
  out.set_generation(progress.generation);
  *out.mutable_chief() = ToProto(progress.chief);
  out.set_samples_per_second(progress.samples_per_second);
  out.set_steps_per_second(progress.steps_per_second);
  if (progress.eta) *out.mutable_eta() = ToProto(*progress.eta);
  if (progress.time) *out.mutable_time() = ToProto(*progress.time);
  return out;
}

v1::Job ToMessage(const JobSnapshot& snapshot) {
  v1::Job out = ToJobMessage(*snapshot.job);
  if (snapshot.waiting) *out.mutable_cause() = ToProto(*snapshot.waiting);
  for (v1::TaskStatus& task : *out.mutable_tasks()) {
    for (v1::RankStatus& rank : *task.mutable_ranks()) {
      const auto live = snapshot.live.find(rank.rank());
      // The stored state of an ended rank is final.
      if (live == snapshot.live.end() || rank.has_exit()) continue;
      // Its node does not know whether it is away.
      RankStatus now = live->second;
      now.away = rank.away();
      now.returned = rank.returned();
      rank = ToProto(now);
    }
  }
  if (snapshot.progress) {
    *out.mutable_progress() = ToMessage(out.name(), *snapshot.progress);
  }
  *out.mutable_bill() = ToProto(snapshot.bill);
  out.set_queue_position(snapshot.queue_position);
  if (snapshot.expected_start) {
    *out.mutable_expected_start_time() = ToProto(*snapshot.expected_start);
  }
  out.set_details_hidden(snapshot.details_hidden);
  return out;
}

Status CheckJobSize(const Submission& job) {
  size_t bytes = ToProto(job.spec).ByteSizeLong();
  if (job.training) {
    bytes = std::max(bytes, ToProto(*job.training).ByteSizeLong());
  }
  if (bytes <= kMaxJobBytes) return OkStatus();
  return InvalidArgument(
      "job {}: has {} bytes with the arguments and variables of all roles; at "
      "most {} are allowed: put them into a file",
      job.spec.name, bytes, kMaxJobBytes);
}

v1::Job ToListedMessage(const JobSnapshot& snapshot) {
  v1::Job out = ToMessage(snapshot);
  out.clear_tasks();
  out.clear_attempts();
  out.clear_in_place_recoveries();
  out.clear_events();
  out.clear_outputs();
  out.clear_reduction_plan();
  v1::JobSpec* const spec = out.mutable_spec();
  spec->clear_argv();
  spec->clear_environment();
  spec->clear_reduction_plan();
  spec->clear_tf_config_job();
  for (v1::RoleSpec& role : *spec->mutable_roles()) {
    role.clear_argv();
    role.clear_environment();
    if (role.has_container()) role.mutable_container()->clear_command();
  }
  if (!out.has_training()) return out;
  v1::TrainingJob* const training = out.mutable_training();
  training->mutable_lockstep()->clear_env();
  v1::TrainingInput* const input = training->mutable_training_input();
  input->clear_args();
  const auto clear = [](v1::ReplicaConfig* config) {
    config->clear_container_command();
    config->clear_container_args();
  };
  if (input->has_master_config()) clear(input->mutable_master_config());
  if (input->has_worker_config()) clear(input->mutable_worker_config());
  if (input->has_parameter_server_config()) {
    clear(input->mutable_parameter_server_config());
  }
  if (input->has_evaluator_config()) clear(input->mutable_evaluator_config());
  return out;
}

v1::Node ToMessage(const NodeSnapshot& snapshot) {
  const Member& member = snapshot.member;
  v1::Node out = ToNodeMessage(member.Record());
  out.set_state(ToProto(member.state));
  out.set_message(member.message);
  for (v1::Gpu& gpu : *out.mutable_gpus()) {
    if (const auto holder = snapshot.gpu_jobs.find(gpu.index());
        holder != snapshot.gpu_jobs.end()) {
      gpu.set_job(holder->second);
    }
    for (const Gpu& known : member.info.gpus) {
      if (known.index != gpu.index()) continue;
      gpu.set_fault(member.GpuTrouble(known));
      gpu.set_state(ToProto(member.StateOf(known)));
      if (const GpuReclaim* reclaim = member.ReclaimOf(known.index)) {
        *gpu.mutable_reclaim() = ToProto(*reclaim);
      }
    }
  }
  *out.mutable_allocated() = ToProto(snapshot.allocated);
  if (member.last_beat_wall != WallTime{}) {
    *out.mutable_last_heartbeat() = ToProto(member.last_beat_wall);
  }
  out.set_cpu_utilization(member.readings.cpu_utilization);
  out.set_memory_available_bytes(member.readings.memory_available_bytes);
  if (member.state != NodeState::kUnknown && member.state != NodeState::kLost) {
    for (const GpuUsage& gpu : member.readings.gpus) {
      *out.add_gpu_usage() = ToProto(gpu);
    }
  }
  for (const HeldProcess& process : member.readings.stuck_processes) {
    *out.add_stuck_processes() = ToProto(process);
  }
  for (const auto& [index, check] : member.checking.last) {
    *out.add_gpu_checks() = ToProto(check);
  }
  for (const JobName& job : snapshot.jobs) out.add_jobs(job);
  for (const UnknownGang& gang : snapshot.unknown) {
    v1::UnknownGang* const unknown = out.add_unknown_gangs();
    unknown->set_job(gang.job);
    unknown->set_job_uid(gang.job_uid);
    unknown->set_generation(gang.generation);
  }
  if (snapshot.cool_down_end) {
    *out.mutable_cool_down_end() = ToProto(*snapshot.cool_down_end);
  }
  for (const NodeName& other : snapshot.apart_from) out.add_apart_from(other);
  return out;
}

}  // namespace lockstep::server
