#include "common/training/training_file.h"

#include <algorithm>

#include "common/yaml/yaml_reader.h"

namespace lockstep {
namespace {

using Fields = std::vector<YamlField>;

FieldReader IntoDuration(std::optional<Duration>* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, value.Text());
    const auto duration = ParseSecondsText(text);
    if (!duration.ok()) return value.Wrong(Message(duration.status()));
    *out = *duration;
    return OkStatus();
  };
}

FieldReader IntoOneOf(std::string* out, std::vector<std::string> known) {
  return [out, known](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(*out, value.Text());
    if (std::find(known.begin(), known.end(), *out) != known.end()) {
      return OkStatus();
    }
    return value.Wrong("there is no " + out->substr(0, 64) +
                       DidYouMean(*out, known));
  };
}

FieldReader IntoTruth(bool* out) {
  return [out](const YamlValue& value) -> Status {
    std::optional<bool> given;
    LOCKSTEP_RETURN_IF_ERROR(Into(&given)(value));
    *out = given.value_or(false);
    return OkStatus();
  };
}

// Records that the field exists.
FieldReader IntoFlag(bool* out) {
  return [out](const YamlValue&) {
    *out = true;
    return OkStatus();
  };
}

FieldReader IntoRanks(LockstepInput* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, value.Text());
    if (text == "gpu") {
      out->ranks_per_gpu = true;
      return OkStatus();
    }
    const auto ranks = value.Whole(1, 65536);
    if (!ranks.ok()) {
      return value.Wrong(
          "must be a number of processes, 1..65536, or gpu: one for "
          "each GPU");
    }
    out->ranks_per_task = *ranks;
    return OkStatus();
  };
}

Status ReadAccelerator(const YamlValue& value, ReplicaConfig* config) {
  AcceleratorConfig& gpus = config->accelerator_config.emplace();
  return ReadFields(value, "acceleratorConfig",
                    {{"count", Into(&gpus.count)}, {"type", Into(&gpus.type)}});
}

Status ReadDisk(const YamlValue& value, ReplicaConfig* config) {
  DiskConfig& disk = config->disk_config.emplace();
  return ReadFields(value, "diskConfig",
                    {{"bootDiskSizeGb", Into(&disk.boot_disk_size_gb)},
                     {"bootDiskType", IntoOneOf(&disk.boot_disk_type,
                                                {"pd-ssd", "pd-standard"})}});
}

FieldReader IntoConfig(ReplicaConfig* out) {
  return [out](const YamlValue& value) {
    return ReadFields(
        value, "ReplicaConfig",
        {{"acceleratorConfig",
          [out](const YamlValue& v) { return ReadAccelerator(v, out); }},
         {"containerArgs", Into(&out->container_args)},
         {"containerCommand", Into(&out->container_command)},
         {"diskConfig", [out](const YamlValue& v) { return ReadDisk(v, out); }},
         {"imageUri", Into(&out->image_uri)},
         {"tpuTfVersion", Into(&out->tpu_tf_version)}});
  };
}

FieldReader IntoScheduling(SchedulingInput* out) {
  return [out](const YamlValue& value) {
    return ReadFields(
        value, "scheduling",
        {{"maxRunningTime", IntoDuration(&out->max_running_time)},
         {"maxWaitTime", IntoDuration(&out->max_wait_time)},
         {"priority", Into(&out->priority)},
         {"resilientToWorkerRestart", Into(&out->resilient_to_worker_restart)},
         {"strategy", IntoOneOf(&out->strategy, {"STRATEGY_UNSPECIFIED",
                                                 "ON_DEMAND", "LOW_COST"})}});
  };
}

void AddReplica(const std::string& name, ReplicaInput* out, Fields* fields) {
  fields->push_back({name + "Type", Into(&out->type)});
  if (name != "master") fields->push_back({name + "Count", Into(&out->count)});
  fields->push_back({name + "Config", IntoConfig(&out->config)});
}

Fields TrainingFields(TrainingInput* in) {
  Fields fields = {{"scaleTier", Into(&in->scale_tier)},
                   {"region", Into(&in->region)}};
  AddReplica("master", &in->master, &fields);
  AddReplica("worker", &in->worker, &fields);
  AddReplica("parameterServer", &in->parameter_server, &fields);
  AddReplica("evaluator", &in->evaluator, &fields);
  const Fields others = {
      {"packageUris", Into(&in->package_uris)},
      {"pythonModule", Into(&in->python_module)},
      {"pythonVersion", Into(&in->python_version)},
      {"runtimeVersion", Into(&in->runtime_version)},
      {"args", Into(&in->args)},
      {"jobDir", Into(&in->job_dir)},
      {"useChiefInTfConfig", Into(&in->use_chief_in_tf_config)},
      {"scheduling", IntoScheduling(&in->scheduling)},
      {"serviceAccount", Into(&in->service_account)},
      {"network", Into(&in->network)},
      {"enableWebAccess", Into(&in->enable_web_access)},
      {"encryptionConfig",
       [in](const YamlValue& v) {
         return ReadFields(v, "encryptionConfig",
                           {{"kmsKeyName", Into(&in->kms_key_name)}});
       }},
      {"hyperparameters", IntoFlag(&in->has_hyperparameters)},
      {"nasJobSpec", IntoFlag(&in->has_nas_job_spec)},
  };
  fields.insert(fields.end(), others.begin(), others.end());
  return fields;
}

Status ReadLockstep(const YamlValue& value, LockstepInput* in) {
  return ReadFields(value, "lockstep",
                    {{"env", Into(&in->env)},
                     {"ranksPerTask", IntoRanks(in)},
                     {"restart",
                      [in](const YamlValue& v) {
                        return ReadFields(
                            v, "restart",
                            {{"budget", Into(&in->restart_budget)}});
                      }},
                     {"runtime", Into(&in->runtime)},
                     {"images", Into(&in->images)},
                     {"inheritedEnvironment", Into(&in->inherited_environment)},
                     {"slurmEnvironment", IntoTruth(&in->slurm_environment)}});
}

bool Has(const Fields& fields, const std::string& name) {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const YamlField& f) { return f.name == name; });
}

FieldReader Refuse(const std::string& sentence) {
  return [sentence](const YamlValue& value) { return value.Wrong(sentence); };
}

}  // namespace

StatusOr<TrainingJob> ParseTrainingFile(const std::string& text,
                                        const std::string& source) {
  LOCKSTEP_ASSIGN_OR_RETURN(const YamlValue root, LoadYaml(text, source));
  TrainingJob job;
  const Fields training = TrainingFields(&job.training_input);
  const auto read_training = [&](const YamlValue& value) {
    return ReadFields(value, "TrainingInput", training,
                      [](const std::string& name) -> std::string {
                        if (name != "labels" && name != "lockstep") return "";
                        return "it belongs next to trainingInput, not inside";
                      });
  };
  Fields fields = {
      {"jobId", Into(&job.job_id)},
      {"labels", Into(&job.labels)},
      {"trainingInput", read_training},
      {"lockstep",
       [&](const YamlValue& v) { return ReadLockstep(v, &job.lockstep); }},
      {"predictionInput", Refuse("lockstep does not predict; submit "
                                 "a job whose program does")},
      {"explanationInput", Refuse("lockstep does not explain; "
                                  "submit a job whose program does")},
  };
  for (const char* name :
       {"state", "createTime", "startTime", "endTime", "errorMessage", "etag",
        "jobPosition", "trainingOutput"}) {
    fields.push_back({name, [&job, name](const YamlValue&) {
                        job.ignored.push_back(name);
                        return OkStatus();
                      }});
  }
  LOCKSTEP_RETURN_IF_ERROR(ReadFields(
      root, "a job", fields, [&](const std::string& name) -> std::string {
        if (!Has(training, name)) return "";
        return "it is a field of trainingInput: indent it under that";
      }));
  return job;
}

}  // namespace lockstep
