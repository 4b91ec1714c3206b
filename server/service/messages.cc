#include "server/service/messages.h"

#include "common/wire/value_wire.h"
#include "server/store/record.h"

namespace lockstep {

v1::JobProgress ToMessage(const JobName& job, const JobProgressInfo& progress) {
  v1::JobProgress out;
  out.set_job(job);
  out.set_generation(progress.generation);
  *out.mutable_chief() = ToProto(progress.chief);
  out.set_samples_per_second(progress.samples_per_second);
  out.set_steps_per_second(progress.steps_per_second);
  if (progress.eta) *out.mutable_eta() = ToProto(*progress.eta);
  return out;
}

v1::Job ToMessage(const JobSnapshot& snapshot) {
  v1::Job out = ToProto(*snapshot.job);
  if (snapshot.waiting) *out.mutable_cause() = ToProto(*snapshot.waiting);
  for (v1::TaskStatus& task : *out.mutable_tasks()) {
    for (v1::RankStatus& rank : *task.mutable_ranks()) {
      const auto live = snapshot.live.find(rank.rank());
      // What is stored of an ended rank is final.
      if (live == snapshot.live.end() || rank.has_exit()) continue;
      rank = ToProto(live->second);
    }
  }
  if (snapshot.progress) {
    *out.mutable_progress() = ToMessage(out.name(), *snapshot.progress);
  }
  *out.mutable_bill() = ToProto(snapshot.bill);
  return out;
}

v1::Job ToListedMessage(const JobSnapshot& snapshot) {
  v1::Job out = ToMessage(snapshot);
  out.clear_tasks();
  out.clear_attempts();
  out.clear_events();
  return out;
}

v1::Node ToMessage(const NodeSnapshot& snapshot) {
  const Member& member = snapshot.member;
  v1::Node out = ToProto(member.Record());
  out.set_state(ToProto(member.state));
  out.set_message(member.message);
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
  for (const JobName& job : snapshot.jobs) out.add_jobs(job);
  return out;
}

}  // namespace lockstep
