#include "common/wire/job_wire.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "common/model/names.h"
#include "common/wire/field_checker.h"

namespace lockstep {
namespace {

// Beyond this, execve refuses on the smallest stack limit in use (8 MiB / 4).
constexpr size_t kMaxProgramBytes = 1 << 20;
constexpr size_t kMaxArguments = 16384;
constexpr size_t kMaxVariables = 4096;
constexpr size_t kMaxPackages = 100;

using Environment = std::map<std::string, std::string>;
using ProtoMap = google::protobuf::Map<std::string, std::string>;

void CheckArgv(const google::protobuf::RepeatedPtrField<std::string>& argv,
               std::string_view field, FieldChecker* check) {
  check->Count(field, argv.size(), kMaxArguments);
  size_t total = 0;
  for (int i = 0; check->ok() && i < argv.size(); ++i) {
    check->Bytes(fmt::format("{}[{}]", field, i), argv[i], kMaxArgument);
    total += argv[i].size() + 1;
  }
  check->Require(total <= kMaxProgramBytes, field,
                 fmt::format("has {} bytes; at most {} are taken", total,
                             kMaxProgramBytes));
  check->Require(argv.empty() || !argv[0].empty(), field,
                 "names an empty program");
}

void CheckEnvironment(const ProtoMap& environment, FieldChecker* check) {
  check->Count("environment", environment.size(), kMaxVariables);
  size_t total = 0;
  // Ordered, so that of several faults always the same one is reported.
  const Environment ordered(environment.begin(), environment.end());
  for (const auto& [name, value] : ordered) {
    if (!check->ok()) return;
    check->Require(IsEnvironmentName(name), "environment",
                   fmt::format("{} is no name of a variable: a letter or "
                               "\"_\", then letters, digits or \"_\"",
                               Quote(name)));
    check->Require(
        !IsReservedEnvironmentName(name), "environment",
        fmt::format("{} is set by lockstep and cannot be given", name));
    // "NAME=value" is one string to the kernel.
    check->Bytes(fmt::format("environment.{}", name), value,
                 kMaxArgument - std::min(kMaxArgument, name.size() + 1));
    total += name.size() + value.size() + 2;
  }
  check->Require(total <= kMaxProgramBytes, "environment",
                 fmt::format("has {} bytes; at most {} are taken", total,
                             kMaxProgramBytes));
}

bool IsLabelPart(std::string_view text) {
  return text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

void CheckLabels(const ProtoMap& labels, FieldChecker* check) {
  check->Count("labels", labels.size(), 64);
  const Environment ordered(labels.begin(), labels.end());
  for (const auto& [key, value] : ordered) {
    check->Require(!key.empty() && IsLabelPart(key), "labels",
                   fmt::format("{} is no key: 1 to 63 lower-case letters, "
                               "digits, \"_\" or \"-\"",
                               Quote(key)));
    check->Require(IsLabelPart(value), "labels",
                   fmt::format("{} is no value: at most 63 lower-case "
                               "letters, digits, \"_\" or \"-\"",
                               Quote(value)));
  }
}

StatusOr<RoleSpec> ParseRole(const v1::RoleSpec& proto, bool job_has_argv,
                             std::string_view path) {
  FieldChecker check(path);
  RoleSpec role;
  check.Take(FromProto(proto.type(), check.At("type")), &role.type);
  const bool single =
      role.type == TaskType::kChief || role.type == TaskType::kEvaluator;
  check.Range("count", proto.count(), 1, single ? 1 : kMaxRanks);
  check.Range("ranks_per_task", proto.ranks_per_task(), 0, kMaxRanks);
  check.Take(FromProto(proto.resources(), check.At("resources")),
             &role.resources);
  check.Require(role.resources.gpu_type.empty() || role.resources.gpus > 0,
                "resources.gpu_type", "is given, but gpus is 0");
  CheckArgv(proto.argv(), "argv", &check);
  if (proto.has_container()) {
    check.Take(FromProto(proto.container(), check.At("container")),
               &role.container.emplace());
  }
  if (proto.has_machine()) {
    check.Take(FromProto(proto.machine(), check.At("machine")),
               &role.machine.emplace());
  }
  check.Require(job_has_argv || proto.argv_size() > 0 || proto.has_container(),
                "argv",
                "is empty, and spec.argv too: name the program to run, or a "
                "container");
  CheckEnvironment(proto.environment(), &check);
  if (!check.ok()) return check.status();
  role.count = proto.count();
  role.ranks_per_task = std::max(1, proto.ranks_per_task());
  role.argv = {proto.argv().begin(), proto.argv().end()};
  role.environment = {proto.environment().begin(), proto.environment().end()};
  return role;
}

void CheckRoles(const std::vector<RoleSpec>& roles, JobKind kind,
                FieldChecker* check) {
  std::set<TaskType> types;
  int64_t ranks = 0;
  int64_t tasks = 0;
  for (const RoleSpec& role : roles) {
    check->Require(types.insert(role.type).second, "roles",
                   fmt::format("{} is there twice: give it once, with the "
                               "whole count",
                               Name(role.type)));
    check->Require(kind == JobKind::kProgram || !role.container, "roles",
                   "a native job runs in no container");
    check->Require(kind == JobKind::kProgram || role.type == TaskType::kChief ||
                       role.type == TaskType::kWorker,
                   "roles",
                   fmt::format("a native job has a chief and workers, no {}",
                               Name(role.type)));
    // A role of a stored job was not checked: no sum may overflow.
    ranks += std::clamp<int64_t>(int64_t{role.count} * role.ranks_per_task, 0,
                                 int64_t{kMaxRanks} + 1);
    tasks += role.count;
  }
  check->Require(
      types.count(TaskType::kChief) > 0 || types.count(TaskType::kWorker) > 0,
      "roles", "a job needs a chief or a worker");
  check->Require(ranks <= kMaxRanks, "roles",
                 fmt::format("ask for {} ranks; at most {} are possible", ranks,
                             kMaxRanks));
  check->Require(kind == JobKind::kNative || tasks <= kMaxTfConfigTasks,
                 "roles",
                 fmt::format("ask for {} tasks; TF_CONFIG has room for the "
                             "addresses of {}",
                             tasks, kMaxTfConfigTasks));
}

void TakeLimit(const google::protobuf::Duration& proto, std::string_view field,
               std::optional<Duration>* out, FieldChecker* check) {
  Duration limit{};
  check->Take(FromProto(proto, check->At(field)), &limit);
  check->Require(limit > Duration{} || !check->ok(), field,
                 "must be longer than 0 s; leave it out for no limit");
  *out = limit;
}

// What only programs of others have.
void TakeProgram(const v1::JobSpec& proto, JobSpec* spec, FieldChecker* check) {
  check->Require(proto.kind() == v1::JOB_KIND_PROGRAM ||
                     (proto.packages_size() == 0 && !proto.has_runtime() &&
                      !proto.restart_worker_alone()),
                 "kind",
                 "is NATIVE: packages, runtime and restart_worker_alone are "
                 "for a PROGRAM");
  check->Count("packages", proto.packages_size(), kMaxPackages);
  for (int i = 0; check->ok() && i < proto.packages_size(); ++i) {
    check->Take(FromProto(proto.packages(i), check->At("packages", i)),
                &spec->packages.emplace_back());
  }
  check->Take(FromProto(proto.runtime(), check->At("runtime")), &spec->runtime);
  check->Count("inherited_environment", proto.inherited_environment_size(),
               kMaxVariables);
  for (const std::string& name : proto.inherited_environment()) {
    check->Require(IsEnvironmentName(name) && !IsReservedEnvironmentName(name),
                   "inherited_environment",
                   Quote(name) + " is no variable that a job may take over");
  }
  // One string of TF_CONFIG, and that one of the environment.
  check->Bytes("tf_config_job", proto.tf_config_job(), kMaxArgument / 2);
  check->Text("job_dir", proto.job_dir(), 4095);
  if (!check->ok()) return;
  spec->inherited_environment = {proto.inherited_environment().begin(),
                                 proto.inherited_environment().end()};
  spec->master_in_tf_config = proto.master_in_tf_config();
  spec->restart_worker_alone = proto.restart_worker_alone();
  spec->slurm_environment = proto.slurm_environment();
  spec->tf_config_job = proto.tf_config_job();
  spec->job_dir = proto.job_dir();
  spec->empty_tf_config = proto.empty_tf_config();
}

}  // namespace

bool IsReservedEnvironmentName(std::string_view name) {
  constexpr std::string_view kNames[] = {"CLOUD_ML_JOB_ID",
                                         "CLUSTER_SPEC",
                                         "COORDINATOR_ADDRESS",
                                         "COORDINATOR_PORT",
                                         "CUDA_VISIBLE_DEVICES",
                                         "DMLC_NUM_WORKER",
                                         "DMLC_TASK_ID",
                                         "DMLC_TRACKER_PORT",
                                         "DMLC_TRACKER_URI",
                                         "GROUP_RANK",
                                         "GROUP_WORLD_SIZE",
                                         "JAX_COORDINATOR_ADDRESS",
                                         "JAX_COORDINATOR_PORT",
                                         "JAX_LOCAL_DEVICE_IDS",
                                         "JAX_NUM_PROCESSES",
                                         "JAX_PROCESS_ID",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "NUM_PROCESSES",
                                         "PET_MASTER_ADDR",
                                         "PET_MASTER_PORT",
                                         "PET_NNODES",
                                         "PET_NODE_RANK",
                                         "PET_NPROC_PER_NODE",
                                         "PROCESS_ID",
                                         "RANK",
                                         "ROLE_NAME",
                                         "ROLE_RANK",
                                         "ROLE_WORLD_SIZE",
                                         "SLURM_GPUS_ON_NODE",
                                         "SLURM_JOBID",
                                         "SLURM_JOB_ID",
                                         "SLURM_JOB_NODELIST",
                                         "SLURM_LOCALID",
                                         "SLURM_NNODES",
                                         "SLURM_NODEID",
                                         "SLURM_NODELIST",
                                         "SLURM_NTASKS",
                                         "SLURM_NTASKS_PER_NODE",
                                         "SLURM_PROCID",
                                         "SLURM_STEP_NODELIST",
                                         "SLURM_STEP_NUM_NODES",
                                         "TF_CONFIG",
                                         "TORCHELASTIC_ERROR_FILE",
                                         "TORCHELASTIC_MAX_RESTARTS",
                                         "TORCHELASTIC_RESTART_COUNT",
                                         "TORCHELASTIC_RUN_ID",
                                         "WORLD_SIZE"};
  return name.substr(0, 3) == "LD_" || name.substr(0, 9) == "LOCKSTEP_" ||
         std::find(std::begin(kNames), std::end(kNames), name) !=
             std::end(kNames);
}

Status CheckLabels(const ProtoMap& labels) {
  FieldChecker check("");
  CheckLabels(labels, &check);
  return check.status();
}

StatusOr<JobSpec> ParseJobSpec(const v1::JobSpec& proto) {
  FieldChecker check("spec");
  JobSpec spec;
  check.JobName("name", proto.name());
  if (proto.kind() == v1::JOB_KIND_UNSPECIFIED) {
    check.Fail("kind", "is missing: say NATIVE or PROGRAM");
  }
  check.Take(FromProto(proto.kind(), check.At("kind")), &spec.kind);
  CheckArgv(proto.argv(), "argv", &check);
  CheckEnvironment(proto.environment(), &check);
  check.Count("roles", proto.roles_size(), 4);
  for (int i = 0; check.ok() && i < proto.roles_size(); ++i) {
    check.Take(
        ParseRole(proto.roles(i), proto.argv_size() > 0, check.At("roles", i)),
        &spec.roles.Edit().emplace_back());
  }
  if (check.ok()) CheckRoles(spec.roles, spec.kind, &check);
  check.Path("output_directory", proto.output_directory());
  check.Take(FromProto(proto.checkpoint(), check.At("checkpoint")),
             &spec.checkpoint);
  check.Range("restart_budget", proto.restart_budget(), 0, 1'000'000);
  if (proto.has_max_running_time()) {
    TakeLimit(proto.max_running_time(), "max_running_time",
              &spec.max_running_time, &check);
  }
  if (proto.has_max_wait_time()) {
    TakeLimit(proto.max_wait_time(), "max_wait_time", &spec.max_wait_time,
              &check);
  }
  check.Range("priority", proto.priority(), 0, 1000);
  check.Take(FromProto(proto.end_with(), check.At("end_with")), &spec.end_with);
  if (proto.has_end_grace()) {
    check.Take(FromProto(proto.end_grace(), check.At("end_grace")),
               &spec.end_grace);
  }
  CheckLabels(proto.labels(), &check);
  check.Path("working_directory", proto.working_directory());
  check.Text("comment", proto.comment(), 4096);
  check.Require(proto.pool().empty() || IsPoolName(proto.pool()), "pool",
                Quote(proto.pool()) +
                    " is no name of a pool: at most 63 lower-case letters, "
                    "digits or \"-\"");
  check.Text("reduction_plan", proto.reduction_plan(), kMaxReductionPlan);
  check.Require(proto.reduction_plan().empty() || spec.kind == JobKind::kNative,
                "reduction_plan",
                "is for NATIVE jobs: a PROGRAM reduces by itself");
  TakeProgram(proto, &spec, &check);
  if (!check.ok()) return check.status();

  std::vector<RoleSpec>& roles = spec.roles.Edit();
  std::stable_sort(roles.begin(), roles.end(),
                   [](const RoleSpec& a, const RoleSpec& b) {
                     return a.type < b.type;  // In the order of ranks.
                   });
  spec.name = proto.name();
  spec.argv = {proto.argv().begin(), proto.argv().end()};
  spec.environment = {proto.environment().begin(), proto.environment().end()};
  spec.output_directory = proto.output_directory();
  spec.restart_budget = proto.has_restart_budget() ? proto.restart_budget() : 3;
  spec.priority = proto.priority();
  spec.labels = {proto.labels().begin(), proto.labels().end()};
  spec.working_directory = proto.working_directory();
  spec.comment = proto.comment();
  spec.pool = proto.pool();
  spec.reduction_plan = proto.reduction_plan();
  return spec;
}

v1::RoleSpec ToProto(const RoleSpec& value) {
  v1::RoleSpec out;
  out.set_type(ToProto(value.type));
  out.set_count(value.count);
  out.set_ranks_per_task(value.ranks_per_task);
  *out.mutable_resources() = ToProto(value.resources);
  if (value.container) *out.mutable_container() = ToProto(*value.container);
  if (value.machine) *out.mutable_machine() = ToProto(*value.machine);
  for (const std::string& arg : value.argv) out.add_argv(arg);
  out.mutable_environment()->insert(value.environment.begin(),
                                    value.environment.end());
  return out;
}

v1::JobSpec ToProto(const JobSpec& value) {
  v1::JobSpec out;
  out.set_name(value.name);
  out.set_kind(ToProto(value.kind));
  for (const RoleSpec& role : value.roles) *out.add_roles() = ToProto(role);
  for (const std::string& arg : value.argv) out.add_argv(arg);
  out.mutable_environment()->insert(value.environment.begin(),
                                    value.environment.end());
  out.set_output_directory(value.output_directory);
  *out.mutable_checkpoint() = ToProto(value.checkpoint);
  out.set_restart_budget(value.restart_budget);
  if (value.max_running_time) {
    *out.mutable_max_running_time() = ToProto(*value.max_running_time);
  }
  if (value.max_wait_time) {
    *out.mutable_max_wait_time() = ToProto(*value.max_wait_time);
  }
  out.set_priority(value.priority);
  out.mutable_labels()->insert(value.labels.begin(), value.labels.end());
  out.set_working_directory(value.working_directory);
  out.set_comment(value.comment);
  for (const Package& package : value.packages) {
    *out.add_packages() = ToProto(package);
  }
  if (value.runtime != Runtime()) {
    *out.mutable_runtime() = ToProto(value.runtime);
  }
  for (const std::string& name : value.inherited_environment) {
    out.add_inherited_environment(name);
  }
  out.set_master_in_tf_config(value.master_in_tf_config);
  out.set_restart_worker_alone(value.restart_worker_alone);
  out.set_slurm_environment(value.slurm_environment);
  out.set_tf_config_job(value.tf_config_job);
  out.set_job_dir(value.job_dir);
  out.set_pool(value.pool);
  out.set_empty_tf_config(value.empty_tf_config);
  out.set_reduction_plan(value.reduction_plan);
  out.set_end_with(ToProto(value.end_with));
  if (value.end_grace != JobSpec().end_grace) {
    *out.mutable_end_grace() = ToProto(value.end_grace);
  }
  return out;
}

}  // namespace lockstep
