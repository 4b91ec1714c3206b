#include "common/wire/training_wire.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <charconv>

#include "common/wire/fields.h"

namespace lockstep {
namespace {

constexpr size_t kMaxItems = 16384;
constexpr size_t kMaxText = 128 * 1024;
constexpr std::string_view kPerGpu = "gpu";

constexpr auto kName = Text(1024);
constexpr auto kList = [](FieldChecker* check, std::string_view field,
                          const auto& list) {
  AtMost(kMaxItems)(check, field, list);
  Each(Bytes(kMaxText))(check, field, list);
};
constexpr auto kMap = [](FieldChecker* check, std::string_view field,
                         const auto& map) {
  AtMost(kMaxItems)(check, field, map);
  Entries(Bytes(1024), Bytes(kMaxText))(check, field, map);
};

void WriteKey(const TrainingInput& from, v1::TrainingInput* to) {
  if (from.kms_key_name.empty()) return;
  to->mutable_encryption_config()->set_kms_key_name(from.kms_key_name);
}

void ReadKey(const v1::TrainingInput& from, TrainingInput* to,
             FieldChecker* check) {
  to->kms_key_name = from.encryption_config().kms_key_name();
  FieldChecker at(check, "encryption_config");
  kName(&at, "kms_key_name", to->kms_key_name);
}

void WriteRanks(const LockstepInput& from, v1::LockstepInput* to) {
  if (from.ranks_per_gpu) {
    to->set_ranks_per_task(std::string(kPerGpu));
  } else if (from.ranks_per_task) {
    to->set_ranks_per_task(std::to_string(*from.ranks_per_task));
  }
  if (from.restart_budget) {
    to->mutable_restart()->set_budget(*from.restart_budget);
  }
}

void ReadRanks(const v1::LockstepInput& from, LockstepInput* to,
               FieldChecker* check) {
  if (from.restart().has_budget()) to->restart_budget = from.restart().budget();
  const std::string& ranks = from.ranks_per_task();
  to->ranks_per_gpu = ranks == kPerGpu;
  if (ranks.empty() || to->ranks_per_gpu) return;
  int64_t number = 0;
  const char* const end = ranks.data() + ranks.size();
  const auto [last, error] = std::from_chars(ranks.data(), end, number);
  if (error != std::errc() || last != end) {
    check->Fail("ranks_per_task",
                Quote(ranks) + " is neither a number nor \"gpu\"");
  }
  to->ranks_per_task = number;
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

LOCKSTEP_FIELDS(AcceleratorConfig, v1::AcceleratorConfig) {
  LOCKSTEP_FIELD(count);
  LOCKSTEP_FIELD(type, kName);
}

LOCKSTEP_FIELDS(DiskConfig, v1::DiskConfig) {
  LOCKSTEP_FIELD(boot_disk_size_gb);
  LOCKSTEP_FIELD(boot_disk_type, kName);
}

LOCKSTEP_FIELDS(ReplicaConfig, v1::ReplicaConfig) {
  LOCKSTEP_FIELD(accelerator_config);
  LOCKSTEP_FIELD(disk_config);
  LOCKSTEP_FIELD(image_uri, kName);
  LOCKSTEP_FIELD(container_command, kList);
  LOCKSTEP_FIELD(container_args, kList);
  LOCKSTEP_FIELD(tpu_tf_version, kName);
}

LOCKSTEP_FIELDS(SchedulingInput, v1::Scheduling) {
  LOCKSTEP_FIELD(max_running_time);
  LOCKSTEP_FIELD(max_wait_time);
  LOCKSTEP_FIELD(priority);
  LOCKSTEP_FIELD(resilient_to_worker_restart);
  LOCKSTEP_FIELD(strategy, kName);
}

// A message that is there and empty would say that it was given: OmitDefault.
LOCKSTEP_FIELDS(TrainingInput, v1::TrainingInput) {
  LOCKSTEP_FIELD(scale_tier, kName);
  LOCKSTEP_FIELD(region, kName);
  LOCKSTEP_FIELD(package_uris, kList);
  LOCKSTEP_FIELD(python_module, kName);
  LOCKSTEP_FIELD(python_version, kName);
  LOCKSTEP_FIELD(runtime_version, kName);
  LOCKSTEP_FIELD(args, kList);
  LOCKSTEP_FIELD(job_dir, Text(4095));
  LOCKSTEP_FIELD(use_chief_in_tf_config);
  LOCKSTEP_FIELD(service_account, kName);
  LOCKSTEP_FIELD(network, kName);
  LOCKSTEP_FIELD(enable_web_access);
  v.OnWrite(WriteKey);
  v.OnRead(ReadKey);
  LOCKSTEP_FIELD_AS(master.type, master_type, kName);
  LOCKSTEP_FIELD_AS(master.config, master_config, OmitDefault());
  LOCKSTEP_FIELD_AS(worker.type, worker_type, kName);
  LOCKSTEP_FIELD_AS(worker.count, worker_count);
  LOCKSTEP_FIELD_AS(worker.config, worker_config, OmitDefault());
  LOCKSTEP_FIELD_AS(parameter_server.type, parameter_server_type, kName);
  LOCKSTEP_FIELD_AS(parameter_server.count, parameter_server_count);
  LOCKSTEP_FIELD_AS(parameter_server.config, parameter_server_config,
                    OmitDefault());
  LOCKSTEP_FIELD_AS(evaluator.type, evaluator_type, kName);
  LOCKSTEP_FIELD_AS(evaluator.count, evaluator_count);
  LOCKSTEP_FIELD_AS(evaluator.config, evaluator_config, OmitDefault());
  LOCKSTEP_FIELD(scheduling, OmitDefault());
}

LOCKSTEP_FIELDS(LockstepInput, v1::LockstepInput) {
  LOCKSTEP_FIELD(env, kMap);
  v.OnWrite(WriteRanks);
  v.OnRead(ReadRanks);
  LOCKSTEP_FIELD(runtime, kName);
  LOCKSTEP_FIELD(images, kMap);
  LOCKSTEP_FIELD(inherited_environment, kList);
  LOCKSTEP_FIELD(slurm_environment);
}

LOCKSTEP_FIELDS(TrainingJob, v1::TrainingJob) {
  LOCKSTEP_FIELD(job_id, kName);
  LOCKSTEP_FIELD(labels, kMap);
  LOCKSTEP_FIELD(training_input);
  LOCKSTEP_FIELD(lockstep, OmitDefault());
}

Status CheckKnown(const v1::TrainingJob& value) {
  return CheckFields(value, "");
}

v1::TrainingJob ToProto(const TrainingJob& value) {
  v1::TrainingJob out;
  WriteValue(value, &out);
  return out;
}

StatusOr<TrainingJob> FromProto(const v1::TrainingJob& value) {
  FieldChecker check("", PathStyle::kJson);
  TrainingJob out;
  ReadValue(value, &out, &check);
  if (!check.ok()) return check.status();
  return out;
}

}  // namespace lockstep
