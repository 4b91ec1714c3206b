#include "common/wire/training_wire.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <charconv>

#include "common/wire/field_checker.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

using Strings = google::protobuf::RepeatedPtrField<std::string>;
using ProtoMap = google::protobuf::Map<std::string, std::string>;

constexpr size_t kMaxName = 1024;
constexpr size_t kMaxItems = 16384;
constexpr size_t kMaxText = 128 * 1024;
constexpr std::string_view kPerGpu = "gpu";

std::vector<std::string> List(const Strings& proto, std::string_view field,
                              FieldChecker* check) {
  check->Count(field, proto.size(), kMaxItems);
  for (int i = 0; check->ok() && i < proto.size(); ++i) {
    check->Bytes(fmt::format("{}[{}]", field, i), proto[i], kMaxText);
  }
  if (!check->ok()) return {};
  return {proto.begin(), proto.end()};
}

std::map<std::string, std::string> Map(const ProtoMap& proto,
                                       std::string_view field,
                                       FieldChecker* check) {
  check->Count(field, proto.size(), kMaxItems);
  for (const auto& [name, value] : proto) {
    check->Bytes(field, name, kMaxName);
    check->Bytes(field, value, kMaxText);
  }
  if (!check->ok()) return {};
  return {proto.begin(), proto.end()};
}

std::string Text(const std::string& proto, std::string_view field,
                 FieldChecker* check, size_t most = kMaxName) {
  check->Text(field, proto, most);
  return check->ok() ? proto : std::string();
}

std::optional<Duration> Limit(const google::protobuf::Duration& proto,
                              bool given, std::string_view field,
                              FieldChecker* check) {
  if (!given) return std::nullopt;
  Duration out{};
  check->Take(FromProto(proto, check->At(field)), &out);
  return out;
}

template <typename T>
std::optional<T> Given(T value, bool given) {
  return given ? std::optional<T>(value) : std::nullopt;
}

void AddAll(const std::vector<std::string>& from, Strings* to) {
  for (const std::string& text : from) *to->Add() = text;
}

v1::ReplicaConfig ConfigToProto(const ReplicaConfig& value) {
  v1::ReplicaConfig out;
  if (const auto& accelerator = value.accelerator_config) {
    v1::AcceleratorConfig* proto = out.mutable_accelerator_config();
    if (accelerator->count) proto->set_count(*accelerator->count);
    proto->set_type(accelerator->type);
  }
  if (const auto& disk = value.disk_config) {
    v1::DiskConfig* proto = out.mutable_disk_config();
    if (disk->boot_disk_size_gb) {
      proto->set_boot_disk_size_gb(*disk->boot_disk_size_gb);
    }
    proto->set_boot_disk_type(disk->boot_disk_type);
  }
  out.set_image_uri(value.image_uri);
  AddAll(value.container_command, out.mutable_container_command());
  AddAll(value.container_args, out.mutable_container_args());
  out.set_tpu_tf_version(value.tpu_tf_version);
  return out;
}

ReplicaConfig GetConfig(const v1::ReplicaConfig& proto, std::string_view path,
                        FieldChecker* parent) {
  FieldChecker check(path);
  ReplicaConfig out;
  if (proto.has_accelerator_config()) {
    const v1::AcceleratorConfig& from = proto.accelerator_config();
    AcceleratorConfig& to = out.accelerator_config.emplace();
    to.count = Given(from.count(), from.has_count());
    to.type = Text(from.type(), "acceleratorConfig.type", &check);
  }
  if (proto.has_disk_config()) {
    const v1::DiskConfig& from = proto.disk_config();
    DiskConfig& to = out.disk_config.emplace();
    to.boot_disk_size_gb =
        Given(from.boot_disk_size_gb(), from.has_boot_disk_size_gb());
    to.boot_disk_type =
        Text(from.boot_disk_type(), "diskConfig.bootDiskType", &check);
  }
  out.image_uri = Text(proto.image_uri(), "imageUri", &check);
  out.container_command =
      List(proto.container_command(), "containerCommand", &check);
  out.container_args = List(proto.container_args(), "containerArgs", &check);
  out.tpu_tf_version = Text(proto.tpu_tf_version(), "tpuTfVersion", &check);
  parent->Add(check.status());
  return out;
}

ReplicaInput GetReplica(const std::string& type, std::optional<int64_t> count,
                        const v1::ReplicaConfig& config,
                        const ReplicaNames& names, FieldChecker* check) {
  ReplicaInput out;
  check->Text(names.type, type, kMaxName);
  out.type = type;
  out.count = count;
  out.config = GetConfig(config, names.config, check);
  return out;
}

v1::Scheduling SchedulingToProto(const SchedulingInput& value) {
  v1::Scheduling out;
  if (value.max_running_time) {
    *out.mutable_max_running_time() = ToProto(*value.max_running_time);
  }
  if (value.max_wait_time) {
    *out.mutable_max_wait_time() = ToProto(*value.max_wait_time);
  }
  if (value.priority) out.set_priority(*value.priority);
  if (value.resilient_to_worker_restart) {
    out.set_resilient_to_worker_restart(*value.resilient_to_worker_restart);
  }
  out.set_strategy(value.strategy);
  return out;
}

SchedulingInput GetScheduling(const v1::Scheduling& proto,
                              FieldChecker* parent) {
  FieldChecker check("trainingInput.scheduling");
  SchedulingInput out;
  out.max_running_time =
      Limit(proto.max_running_time(), proto.has_max_running_time(),
            "maxRunningTime", &check);
  out.max_wait_time = Limit(proto.max_wait_time(), proto.has_max_wait_time(),
                            "maxWaitTime", &check);
  out.priority = Given(proto.priority(), proto.has_priority());
  out.resilient_to_worker_restart =
      Given(proto.resilient_to_worker_restart(),
            proto.has_resilient_to_worker_restart());
  out.strategy = Text(proto.strategy(), "strategy", &check);
  parent->Add(check.status());
  return out;
}

v1::TrainingInput InputToProto(const TrainingInput& value) {
  v1::TrainingInput out;
  out.set_scale_tier(value.scale_tier);
  out.set_region(value.region);
  out.set_master_type(value.master.type);
  out.set_worker_type(value.worker.type);
  out.set_parameter_server_type(value.parameter_server.type);
  out.set_evaluator_type(value.evaluator.type);
  if (value.worker.count) out.set_worker_count(*value.worker.count);
  if (value.parameter_server.count) {
    out.set_parameter_server_count(*value.parameter_server.count);
  }
  if (value.evaluator.count) out.set_evaluator_count(*value.evaluator.count);
  // Only what was given: an empty message would say "there, and empty".
  if (value.master.config != ReplicaConfig()) {
    *out.mutable_master_config() = ConfigToProto(value.master.config);
  }
  if (value.worker.config != ReplicaConfig()) {
    *out.mutable_worker_config() = ConfigToProto(value.worker.config);
  }
  if (value.parameter_server.config != ReplicaConfig()) {
    *out.mutable_parameter_server_config() =
        ConfigToProto(value.parameter_server.config);
  }
  if (value.evaluator.config != ReplicaConfig()) {
    *out.mutable_evaluator_config() = ConfigToProto(value.evaluator.config);
  }
  AddAll(value.package_uris, out.mutable_package_uris());
  out.set_python_module(value.python_module);
  out.set_python_version(value.python_version);
  out.set_runtime_version(value.runtime_version);
  AddAll(value.args, out.mutable_args());
  out.set_job_dir(value.job_dir);
  if (value.use_chief_in_tf_config) {
    out.set_use_chief_in_tf_config(*value.use_chief_in_tf_config);
  }
  if (value.scheduling != SchedulingInput()) {
    *out.mutable_scheduling() = SchedulingToProto(value.scheduling);
  }
  out.set_service_account(value.service_account);
  out.set_network(value.network);
  if (value.enable_web_access) {
    out.set_enable_web_access(*value.enable_web_access);
  }
  if (!value.kms_key_name.empty()) {
    out.mutable_encryption_config()->set_kms_key_name(value.kms_key_name);
  }
  return out;
}

TrainingInput GetInput(const v1::TrainingInput& proto, FieldChecker* parent) {
  FieldChecker check("trainingInput");
  TrainingInput out;
  out.scale_tier = Text(proto.scale_tier(), "scaleTier", &check);
  out.region = Text(proto.region(), "region", &check);
  out.package_uris = List(proto.package_uris(), "packageUris", &check);
  out.python_module = Text(proto.python_module(), "pythonModule", &check);
  out.python_version = Text(proto.python_version(), "pythonVersion", &check);
  out.runtime_version = Text(proto.runtime_version(), "runtimeVersion", &check);
  out.args = List(proto.args(), "args", &check);
  out.job_dir = Text(proto.job_dir(), "jobDir", &check, 4095);
  out.use_chief_in_tf_config =
      Given(proto.use_chief_in_tf_config(), proto.has_use_chief_in_tf_config());
  out.service_account = Text(proto.service_account(), "serviceAccount", &check);
  out.network = Text(proto.network(), "network", &check);
  out.enable_web_access =
      Given(proto.enable_web_access(), proto.has_enable_web_access());
  out.kms_key_name = Text(proto.encryption_config().kms_key_name(),
                          "encryptionConfig.kmsKeyName", &check);
  parent->Add(check.status());
  // These know their own paths.
  out.master = GetReplica(proto.master_type(), std::nullopt,
                          proto.master_config(), kMasterNames, parent);
  out.worker = GetReplica(proto.worker_type(),
                          Given(proto.worker_count(), proto.has_worker_count()),
                          proto.worker_config(), kWorkerNames, parent);
  out.parameter_server = GetReplica(
      proto.parameter_server_type(),
      Given(proto.parameter_server_count(), proto.has_parameter_server_count()),
      proto.parameter_server_config(), kParameterServerNames, parent);
  out.evaluator =
      GetReplica(proto.evaluator_type(),
                 Given(proto.evaluator_count(), proto.has_evaluator_count()),
                 proto.evaluator_config(), kEvaluatorNames, parent);
  out.scheduling = GetScheduling(proto.scheduling(), parent);
  return out;
}

v1::LockstepInput LockstepToProto(const LockstepInput& value) {
  v1::LockstepInput out;
  out.mutable_env()->insert(value.env.begin(), value.env.end());
  if (value.ranks_per_gpu) {
    out.set_ranks_per_task(std::string(kPerGpu));
  } else if (value.ranks_per_task) {
    out.set_ranks_per_task(std::to_string(*value.ranks_per_task));
  }
  if (value.restart_budget) {
    out.mutable_restart()->set_budget(*value.restart_budget);
  }
  out.set_runtime(value.runtime);
  out.mutable_images()->insert(value.images.begin(), value.images.end());
  AddAll(value.inherited_environment, out.mutable_inherited_environment());
  out.set_slurm_environment(value.slurm_environment);
  return out;
}

LockstepInput GetLockstep(const v1::LockstepInput& proto,
                          FieldChecker* parent) {
  FieldChecker check("lockstep");
  LockstepInput out;
  out.env = Map(proto.env(), "env", &check);
  const std::string& ranks = proto.ranks_per_task();
  if (ranks == kPerGpu) {
    out.ranks_per_gpu = true;
  } else if (!ranks.empty()) {
    int64_t number = 0;
    const char* const end = ranks.data() + ranks.size();
    const auto [last, error] = std::from_chars(ranks.data(), end, number);
    if (error != std::errc() || last != end) {
      check.Fail("ranksPerTask",
                 Quote(ranks) + " is neither a number nor \"gpu\"");
    }
    out.ranks_per_task = number;
  }
  if (proto.has_restart()) {
    out.restart_budget =
        Given(proto.restart().budget(), proto.restart().has_budget());
  }
  out.runtime = Text(proto.runtime(), "runtime", &check);
  out.images = Map(proto.images(), "images", &check);
  out.inherited_environment =
      List(proto.inherited_environment(), "inheritedEnvironment", &check);
  out.slurm_environment = proto.slurm_environment();
  parent->Add(check.status());
  return out;
}

// `message` and all that is in it: as deep as the schema, which has no loop.
Status CheckFields(const google::protobuf::Message& message,
                   const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown =
      reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return InvalidArgument(
        "{}: has a field (number {}) that this version does not know",
        path.empty() ? "the job" : path, unknown.field(0).number());
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr || field->is_repeated()) continue;
    LOCKSTEP_RETURN_IF_ERROR(
        CheckFields(reflection.GetMessage(message, field),
                    path + (path.empty() ? "" : ".") + field->json_name()));
  }
  return OkStatus();
}

}  // namespace

Status CheckKnown(const v1::TrainingJob& value) {
  return CheckFields(value, "");
}

v1::TrainingJob ToProto(const TrainingJob& value) {
  v1::TrainingJob out;
  out.set_job_id(value.job_id);
  out.mutable_labels()->insert(value.labels.begin(), value.labels.end());
  *out.mutable_training_input() = InputToProto(value.training_input);
  if (value.lockstep != LockstepInput()) {
    *out.mutable_lockstep() = LockstepToProto(value.lockstep);
  }
  return out;
}

StatusOr<TrainingJob> FromProto(const v1::TrainingJob& value,
                                std::string_view path) {
  FieldChecker check(path);
  TrainingJob out;
  out.job_id = Text(value.job_id(), "jobId", &check);
  out.labels = Map(value.labels(), "labels", &check);
  out.training_input = GetInput(value.training_input(), &check);
  out.lockstep = GetLockstep(value.lockstep(), &check);
  if (!check.ok()) return check.status();
  return out;
}

}  // namespace lockstep
