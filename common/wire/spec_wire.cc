// Resources and cluster specs.
#include <set>

#include "common/base/host_port.h"
#include "common/wire/field_checker.h"
#include "common/wire/job_wire.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr double kMaxCpus = 65536;
constexpr int64_t kMaxMemory = int64_t{1} << 60;
constexpr int64_t kMaxGpus = 4096;  // Of one host.
constexpr size_t kMaxServices = 256;

}  // namespace

v1::Resources ToProto(const Resources& value) {
  v1::Resources out;
  out.set_cpus(value.cpus);
  out.set_memory_bytes(value.memory_bytes);
  out.set_gpus(value.gpus);
  out.set_gpu_type(value.gpu_type);
  return out;
}

StatusOr<Resources> FromProto(const v1::Resources& value,
                              std::string_view path) {
  FieldChecker check(path);
  check.Number("cpus", value.cpus(), 0, kMaxCpus);
  check.Range("memory_bytes", value.memory_bytes(), 0, kMaxMemory);
  check.Range("gpus", value.gpus(), 0, kMaxGpus);
  check.Text("gpu_type", value.gpu_type(), 128);
  if (!check.ok()) return check.status();
  return Resources{value.cpus(), value.memory_bytes(), value.gpus(),
                   value.gpu_type()};
}

v1::Gpu ToProto(const Gpu& value) {
  v1::Gpu out;
  out.set_index(value.index);
  out.set_uuid(value.uuid);
  out.set_model(value.model);
  out.set_memory_bytes(value.memory_bytes);
  out.set_fault(value.fault);
  return out;
}

StatusOr<Gpu> FromProto(const v1::Gpu& value, std::string_view path) {
  FieldChecker check(path);
  check.Range("index", value.index(), 0, kMaxGpus - 1);
  check.Text("uuid", value.uuid(), 128);
  check.Text("model", value.model(), 128);
  check.Range("memory_bytes", value.memory_bytes(), 0, kMaxMemory);
  check.Text("fault", value.fault(), 256);
  if (!check.ok()) return check.status();
  return Gpu{value.index(), value.uuid(), value.model(), value.memory_bytes(),
             value.fault()};
}

v1::GpuUsage ToProto(const GpuUsage& value) {
  v1::GpuUsage out;
  out.set_index(value.index);
  if (value.utilization) out.set_utilization(*value.utilization);
  if (value.memory_access) out.set_memory_access(*value.memory_access);
  if (value.memory_used_bytes) {
    out.set_memory_used_bytes(*value.memory_used_bytes);
  }
  if (value.power_watts) out.set_power_watts(*value.power_watts);
  if (value.temperature_celsius) {
    out.set_temperature_celsius(*value.temperature_celsius);
  }
  return out;
}

StatusOr<GpuUsage> FromProto(const v1::GpuUsage& value, std::string_view path) {
  FieldChecker check(path);
  check.Range("index", value.index(), 0, kMaxGpus - 1);
  check.Number("utilization", value.utilization(), 0, 1);
  check.Number("memory_access", value.memory_access(), 0, 1);
  check.Range("memory_used_bytes", value.memory_used_bytes(), 0, kMaxMemory);
  check.Number("power_watts", value.power_watts(), 0, 1e6);
  check.Number("temperature_celsius", value.temperature_celsius(), -274, 1e4);
  if (!check.ok()) return check.status();
  GpuUsage out;
  out.index = value.index();
  if (value.has_utilization()) out.utilization = value.utilization();
  if (value.has_memory_access()) out.memory_access = value.memory_access();
  if (value.has_memory_used_bytes()) {
    out.memory_used_bytes = value.memory_used_bytes();
  }
  if (value.has_power_watts()) out.power_watts = value.power_watts();
  if (value.has_temperature_celsius()) {
    out.temperature_celsius = value.temperature_celsius();
  }
  return out;
}

v1::CheckpointPolicy ToProto(const CheckpointPolicy& value) {
  v1::CheckpointPolicy out;
  out.set_interval_steps(value.interval_steps);
  out.set_keep(value.keep);
  return out;
}

StatusOr<CheckpointPolicy> FromProto(const v1::CheckpointPolicy& value,
                                     std::string_view path) {
  FieldChecker check(path);
  check.Range("interval_steps", value.interval_steps(), 0, kMaxExact);
  check.Range("keep", value.keep(), 0, 10000);
  if (!check.ok()) return check.status();
  return CheckpointPolicy{value.interval_steps(),
                          value.keep() == 0 ? 3 : value.keep()};
}

v1::RankSpec ToProto(const RankSpec& value) {
  v1::RankSpec out;
  out.set_rank(value.rank);
  out.set_local_rank(value.local_rank);
  for (const int32_t gpu : value.gpus) out.add_gpus(gpu);
  out.set_replica_group(value.replica_group);
  return out;
}

StatusOr<RankSpec> FromProto(const v1::RankSpec& value, std::string_view path) {
  FieldChecker check(path);
  check.Range("rank", value.rank(), 0, kMaxRanks - 1);
  check.Range("local_rank", value.local_rank(), 0, kMaxRanks - 1);
  check.Range("replica_group", value.replica_group(), 0, kMaxRanks - 1);
  check.Count("gpus", value.gpus_size(), kMaxGpus);
  if (!check.ok()) return check.status();
  for (const int32_t gpu : value.gpus()) {
    check.Range("gpus", gpu, 0, kMaxGpus - 1);
  }
  if (!check.ok()) return check.status();
  return RankSpec{value.rank(),
                  value.local_rank(),
                  {value.gpus().begin(), value.gpus().end()},
                  value.replica_group()};
}

v1::TaskSpec ToProto(const TaskSpec& value) {
  v1::TaskSpec out;
  out.set_type(ToProto(value.type));
  out.set_index(value.index);
  out.set_node(value.node);
  out.set_address(value.address);
  for (const RankSpec& rank : value.ranks) *out.add_ranks() = ToProto(rank);
  return out;
}

StatusOr<TaskSpec> FromProto(const v1::TaskSpec& value, std::string_view path) {
  FieldChecker check(path);
  TaskSpec out;
  check.Take(FromProto(value.type(), check.At("type")), &out.type);
  check.Range("index", value.index(), 0, kMaxRanks - 1);
  check.NodeName("node", value.node());
  check.Text("address", value.address(), 300);
  check.Count("ranks", value.ranks_size(), kMaxRanks);
  if (check.ok() && !ParseHostPort(value.address()).ok()) {
    check.Fail("address", Quote(value.address()) + " is not host:port");
  }
  for (int i = 0; check.ok() && i < value.ranks_size(); ++i) {
    check.Take(FromProto(value.ranks(i), check.At("ranks", i)),
               &out.ranks.emplace_back());
  }
  if (!check.ok()) return check.status();
  out.index = value.index();
  out.node = value.node();
  out.address = value.address();
  return out;
}

v1::ClusterSpec ToProto(const ClusterSpec& value) {
  v1::ClusterSpec out;
  out.set_job(value.job);
  out.set_job_uid(value.job_uid);
  out.set_generation(value.generation);
  out.set_world_size(value.world_size);
  for (const TaskSpec& task : value.tasks) *out.add_tasks() = ToProto(task);
  out.set_master_address(value.master_address);
  out.set_master_port(value.master_port);
  out.mutable_services()->insert(value.services.begin(), value.services.end());
  out.set_master_in_tf_config(value.master_in_tf_config);
  out.set_slurm_environment(value.slurm_environment);
  out.set_tf_config_job(value.tf_config_job);
  out.set_empty_tf_config(value.empty_tf_config);
  return out;
}

std::string EncodeClusterSpec(const ClusterSpec& value) {
  return ToProto(value).SerializeAsString();
}

StatusOr<ClusterSpec> FromProto(const v1::ClusterSpec& value,
                                std::string_view path) {
  FieldChecker check(path);
  ClusterSpec out;
  check.JobName("job", value.job());
  check.Text("job_uid", value.job_uid(), 64);
  check.Range("world_size", value.world_size(), 1, kMaxRanks);
  check.Count("tasks", value.tasks_size(), kMaxRanks);
  check.Text("master_address", value.master_address(), 255);
  check.Range("master_port", value.master_port(), 0, 65535);
  check.Bytes("tf_config_job", value.tf_config_job(), kMaxArgument);
  check.Count("services", value.services_size(), kMaxServices);
  for (const auto& [name, address] : value.services()) {
    check.Text("services", name, 64);
    check.Text("services", address, 1024);
  }
  std::set<int32_t> ranks;
  int64_t reducing = 0;
  for (int i = 0; check.ok() && i < value.tasks_size(); ++i) {
    TaskSpec& task = out.tasks.emplace_back();
    check.Take(FromProto(value.tasks(i), check.At("tasks", i)), &task);
    if (!check.ok()) break;
    for (const RankSpec& rank : task.ranks) {
      check.Require(ranks.insert(rank.rank).second, "tasks",
                    fmt::format("rank {} is there twice", rank.rank));
      check.Require(static_cast<size_t>(rank.local_rank) < task.ranks.size(),
                    "tasks",
                    fmt::format("rank {} has no such local rank", rank.rank));
      if (task.type == TaskType::kChief || task.type == TaskType::kWorker) {
        ++reducing;
        check.Require(rank.rank < value.world_size(), "tasks",
                      fmt::format("rank {} does not fit world_size {}",
                                  rank.rank, value.world_size()));
      }
    }
  }
  check.Require(reducing == value.world_size(), "world_size",
                fmt::format("is {}, but the chief and the workers have {} "
                            "ranks",
                            value.world_size(), reducing));
  check.Require(ranks.empty() ||
                    *ranks.rbegin() == static_cast<int64_t>(ranks.size()) - 1,
                "tasks", "ranks are not numbered without gaps");
  if (!check.ok()) return check.status();
  out.job = value.job();
  out.job_uid = value.job_uid();
  out.generation = value.generation();
  out.world_size = value.world_size();
  out.master_address = value.master_address();
  out.master_port = value.master_port();
  out.services = {value.services().begin(), value.services().end()};
  out.master_in_tf_config = value.master_in_tf_config();
  out.slurm_environment = value.slurm_environment();
  out.tf_config_job = value.tf_config_job();
  out.empty_tf_config = value.empty_tf_config();
  return out;
}

StatusOr<ClusterSpec> DecodeClusterSpec(const std::string& bytes,
                                        std::string_view path) {
  v1::ClusterSpec proto;
  if (!proto.ParseFromString(bytes)) {
    return InvalidArgument("{}: {} bytes are no encoded ClusterSpec", path,
                           bytes.size());
  }
  return FromProto(proto, path);
}

}  // namespace lockstep
