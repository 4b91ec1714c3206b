// A training job in the terms of AI Platform Training v1: its Job resource with
// its TrainingInput. Pure values that hold what the user wrote. translate.h
// defines the meaning of fields and the rules between them.
//
// Names follow the resource (trainingInput.workerType is worker.type). An empty
// text or list and an absent optional mean that the field was not given.
#ifndef LOCKSTEP_COMMON_TRAINING_TRAINING_INPUT_H_
#define LOCKSTEP_COMMON_TRAINING_TRAINING_INPUT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

struct AcceleratorConfig {
  std::optional<int64_t> count;
  std::string type;  // "NVIDIA_TESLA_T4"

  bool operator==(const AcceleratorConfig&) const = default;
};

struct DiskConfig {
  std::optional<int64_t> boot_disk_size_gb;
  std::string boot_disk_type;

  bool operator==(const DiskConfig&) const = default;
};

struct ReplicaConfig {
  std::optional<AcceleratorConfig> accelerator_config;
  std::optional<DiskConfig> disk_config;
  std::string image_uri;
  std::vector<std::string> container_command;
  std::vector<std::string> container_args;
  std::string tpu_tf_version;

  bool operator==(const ReplicaConfig&) const = default;
};

// masterType and masterConfig; workerType, workerCount and workerConfig; ...
struct ReplicaInput {
  std::string type;
  std::optional<int64_t> count;  // Never set for the master.
  ReplicaConfig config;

  bool operator==(const ReplicaInput&) const = default;
};

struct SchedulingInput {
  std::optional<Duration> max_running_time;
  std::optional<Duration> max_wait_time;
  std::optional<int64_t> priority;
  std::optional<bool> resilient_to_worker_restart;
  std::string strategy;

  bool operator==(const SchedulingInput&) const = default;
};

struct TrainingInput {
  std::string scale_tier;
  std::string region;
  ReplicaInput master;
  ReplicaInput worker;
  ReplicaInput parameter_server;
  ReplicaInput evaluator;
  std::vector<std::string> package_uris;
  std::string python_module;
  std::string python_version;
  std::string runtime_version;
  std::vector<std::string> args;
  std::string job_dir;
  std::optional<bool> use_chief_in_tf_config;
  SchedulingInput scheduling;
  std::string service_account;
  std::string network;
  std::optional<bool> enable_web_access;
  std::string kms_key_name;  // encryptionConfig.kmsKeyName
  // Set if these were given. They are rejected, so their content is not read.
  bool has_hyperparameters = false;
  bool has_nas_job_spec = false;

  bool operator==(const TrainingInput&) const = default;
};

// The key `lockstep:` next to trainingInput: settings that AI Platform lacks.
struct LockstepInput {
  std::map<std::string, std::string> env;
  // Ranks per chief and worker task; the default is one. ranks_per_gpu: "gpu",
  // one rank per GPU of the task.
  std::optional<int64_t> ranks_per_task;
  bool ranks_per_gpu = false;
  // restart.budget: failed attempts without progress before the job fails.
  std::optional<int64_t> restart_budget;
  // The interpreter of the site that runs pythonModule.
  std::string runtime;
  // Image name prefix -> replacement.
  std::map<std::string, std::string> images;
  // As in JobSpec.
  std::vector<std::string> inherited_environment;
  bool slurm_environment = false;

  bool operator==(const LockstepInput&) const = default;
};

struct TrainingJob {
  std::string job_id;
  std::map<std::string, std::string> labels;
  TrainingInput training_input;
  LockstepInput lockstep;
  // Fields that only the service sets, which were ignored: "state".
  std::vector<std::string> ignored;

  bool operator==(const TrainingJob&) const = default;
};

// Returns `base` overridden by the fields that `over` sets, as flags override a
// file. Lists, labels and acceleratorConfig are replaced whole; lockstep.env
// and lockstep.images are merged by name.
TrainingJob Overlay(TrainingJob base, const TrainingJob& over);

// Parses "7200s", "0.5s": seconds with up to nine decimals, at most 100 years.
StatusOr<Duration> ParseSecondsText(std::string_view text);

// The field paths of a role, for errors.
struct ReplicaNames {
  const char* type;    // "trainingInput.workerType"
  const char* count;   // "trainingInput.workerCount"; empty for the master
  const char* config;  // "trainingInput.workerConfig"
};
inline constexpr ReplicaNames kMasterNames = {"trainingInput.masterType", "",
                                              "trainingInput.masterConfig"};
inline constexpr ReplicaNames kWorkerNames = {"trainingInput.workerType",
                                              "trainingInput.workerCount",
                                              "trainingInput.workerConfig"};
inline constexpr ReplicaNames kParameterServerNames = {
    "trainingInput.parameterServerType", "trainingInput.parameterServerCount",
    "trainingInput.parameterServerConfig"};
inline constexpr ReplicaNames kEvaluatorNames = {
    "trainingInput.evaluatorType", "trainingInput.evaluatorCount",
    "trainingInput.evaluatorConfig"};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TRAINING_INPUT_H_
