// Resources and cluster specs.
#include <set>

#include "common/base/host_port.h"
#include "common/wire/environment_fields.h"
#include "common/wire/fields.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr double kMaxCpus = 65536;
constexpr int64_t kMaxMemory = int64_t{1} << 60;
constexpr int64_t kMaxGpus = 4096;  // Of one host.
constexpr size_t kMaxServices = 256;

constexpr auto kGpuIndex = Range(0, kMaxGpus - 1);

void CheckRanks(const ClusterSpec& spec, FieldChecker* check) {
  std::set<int32_t> ranks;
  int64_t reducing = 0;
  for (const TaskSpec& task : spec.tasks) {
    for (const RankSpec& rank : task.ranks) {
      check->Require(ranks.insert(rank.rank).second, "tasks",
                     fmt::format("rank {} is there twice", rank.rank));
      check->Require(static_cast<size_t>(rank.local_rank) < task.ranks.size(),
                     "tasks",
                     fmt::format("rank {} has no such local rank", rank.rank));
      if (task.type == TaskType::kChief || task.type == TaskType::kWorker) {
        ++reducing;
        check->Require(rank.rank < spec.world_size, "tasks",
                       fmt::format("rank {} does not fit world_size {}",
                                   rank.rank, spec.world_size));
      }
      if (!check->ok()) return;
    }
  }
  check->Require(reducing == spec.world_size, "world_size",
                 fmt::format("is {}, but the chief and the workers have {} "
                             "ranks",
                             spec.world_size, reducing));
  check->Require(ranks.empty() ||
                     *ranks.rbegin() == static_cast<int64_t>(ranks.size()) - 1,
                 "tasks", "ranks are not numbered without gaps");
}

}  // namespace

LOCKSTEP_FIELDS(Resources, v1::Resources) {
  LOCKSTEP_FIELD(cpus, Number(0, kMaxCpus));
  LOCKSTEP_FIELD(memory_bytes, Range(0, kMaxMemory));
  LOCKSTEP_FIELD(gpus, Range(0, kMaxGpus));
  LOCKSTEP_FIELD(gpu_type, Text(128));
}

LOCKSTEP_FIELDS(Gpu, v1::Gpu) {
  LOCKSTEP_FIELD(index, kGpuIndex);
  LOCKSTEP_FIELD(uuid, Text(128));
  LOCKSTEP_FIELD(model, Text(128));
  LOCKSTEP_FIELD(memory_bytes, Range(0, kMaxMemory));
  LOCKSTEP_FIELD(fault, Text(256));
  LOCKSTEP_FIELD(fault_end);
  LOCKSTEP_FIELD(lift_end);
}

LOCKSTEP_FIELDS(GpuUsage, v1::GpuUsage) {
  LOCKSTEP_FIELD(index, kGpuIndex);
  LOCKSTEP_FIELD(utilization, Number(0, 1));
  LOCKSTEP_FIELD(memory_access, Number(0, 1));
  LOCKSTEP_FIELD(memory_used_bytes, Range(0, kMaxMemory));
  LOCKSTEP_FIELD(power_watts, Number(0, 1e6));
  LOCKSTEP_FIELD(temperature_celsius, Number(-274, 1e4));
  LOCKSTEP_FIELD(uncorrected_errors, kCounter);
  LOCKSTEP_FIELD(remap_pending);
  LOCKSTEP_FIELD(remap_failed);
  LOCKSTEP_FIELD(pcie_width, Range(0, 1024));
  LOCKSTEP_FIELD(pcie_width_max, Range(0, 1024));
  LOCKSTEP_FIELD(nvlinks, Range(0, 1024));
  LOCKSTEP_FIELD(slowdown, Text(64));
  LOCKSTEP_FIELD(sm_activity, Number(0, 1));
  LOCKSTEP_FIELD(tensor_activity, Number(0, 1));
}

LOCKSTEP_FIELDS(HeldProcess, v1::HeldProcess) {
  LOCKSTEP_FIELD(pid, kCounter);
  LOCKSTEP_FIELD(user, Text(64));
  LOCKSTEP_FIELD(command, Text(64));
  LOCKSTEP_FIELD(state, Text(4));
  LOCKSTEP_FIELD(wait_channel, Text(128));
  LOCKSTEP_FIELD(since);
  LOCKSTEP_FIELD(gpu_memory_bytes, kCounter);
  LOCKSTEP_FIELD(job, EmptyOr(kJobName));
}

LOCKSTEP_FIELDS(GpuReclaim, v1::GpuReclaim) {
  LOCKSTEP_FIELD(index, kGpuIndex);
  LOCKSTEP_FIELD(since);
  LOCKSTEP_FIELD(memory_used_bytes, Range(0, kMaxMemory));
  LOCKSTEP_FIELD(baseline_bytes, Range(0, kMaxMemory));
  LOCKSTEP_FIELD(processes, AtMost(kMaxReclaimProcesses));
  LOCKSTEP_FIELD(job, EmptyOr(kJobName));
}

LOCKSTEP_FIELDS(CheckpointPolicy, v1::CheckpointPolicy) {
  LOCKSTEP_FIELD(interval_steps, Range(0, kMaxExact));
  LOCKSTEP_FIELD(keep, Range(0, 10'000));
  v.Rule([](CheckpointPolicy* policy, FieldChecker*) {
    if (policy->keep == 0) policy->keep = CheckpointPolicy().keep;
  });
}

LOCKSTEP_FIELDS(RankSpec, v1::RankSpec) {
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(local_rank, kRank);
  LOCKSTEP_FIELD(replica_group, kRank);
  LOCKSTEP_FIELD(gpus, AtMost(kMaxGpus), Each(kGpuIndex));
  LOCKSTEP_FIELD(restarts, kCounter);
}

LOCKSTEP_FIELDS(TaskSpec, v1::TaskSpec) {
  LOCKSTEP_FIELD(type);
  LOCKSTEP_FIELD(index, kRank);
  LOCKSTEP_FIELD(node, kNodeName);
  LOCKSTEP_FIELD(address, Text(300));
  LOCKSTEP_FIELD(ranks, AtMost(kMaxRanks));
  v.Rule([](TaskSpec* task, FieldChecker* check) {
    if (!ParseHostPort(task->address).ok()) {
      check->Fail("address", Quote(task->address) + " is not host:port");
    }
  });
}

LOCKSTEP_FIELDS(ClusterSpec, v1::ClusterSpec) {
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(job_uid, kUid);
  LOCKSTEP_FIELD(generation);
  LOCKSTEP_FIELD(world_size, Range(1, kMaxRanks));
  LOCKSTEP_FIELD(full_size, Range(0, kMaxRanks));
  LOCKSTEP_FIELD(master_address, Text(255));
  LOCKSTEP_FIELD(master_port, Range(0, 65535));
  LOCKSTEP_FIELD(services, AtMost(kMaxServices), Entries(Text(64), Text(1024)));
  EnvironmentOptionsOf(v);
  LOCKSTEP_FIELD(tasks, AtMost(kMaxRanks));
  v.Rule(
      [](ClusterSpec* spec, FieldChecker* check) { CheckRanks(*spec, check); });
}

std::string EncodeClusterSpec(const ClusterSpec& value) {
  return ToProto(value).SerializeAsString();
}

}  // namespace lockstep
