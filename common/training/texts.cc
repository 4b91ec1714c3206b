#include "common/training/texts.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kMaxProgramText = 1024;
constexpr size_t kMaxPath = 4095;

Status CheckText(const std::string& text, const std::string& path,
                 size_t most = kMaxProgramText) {
  if (text.size() > most) {
    return InvalidArgument("{}: has {} bytes; at most {} are allowed", path,
                           text.size(), most);
  }
  const bool control = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (control) {
    return InvalidArgument("{}: holds a control character, such as a newline",
                           path);
  }
  return OkStatus();
}

Status CheckReplicaTexts(const ReplicaInput& role, const ReplicaNames& names) {
  const ReplicaConfig& config = role.config;
  const std::string path = names.config;
  LOCKSTEP_RETURN_IF_ERROR(CheckText(role.type, names.type));
  LOCKSTEP_RETURN_IF_ERROR(CheckText(config.image_uri, path + ".imageUri"));
  if (config.accelerator_config) {
    LOCKSTEP_RETURN_IF_ERROR(CheckText(config.accelerator_config->type,
                                       path + ".acceleratorConfig.type"));
  }
  if (config.disk_config) {
    LOCKSTEP_RETURN_IF_ERROR(CheckText(config.disk_config->boot_disk_type,
                                       path + ".diskConfig.bootDiskType"));
  }
  return OkStatus();
}

}  // namespace

Status CheckTexts(const TrainingJob& job) {
  const TrainingInput& in = job.training_input;
  const std::pair<const char*, const std::string*> texts[] = {
      {"jobId", &job.job_id},
      {"trainingInput.scaleTier", &in.scale_tier},
      {"trainingInput.region", &in.region},
      {"trainingInput.pythonModule", &in.python_module},
      {"trainingInput.pythonVersion", &in.python_version},
      {"trainingInput.runtimeVersion", &in.runtime_version},
      {"trainingInput.scheduling.strategy", &in.scheduling.strategy},
      {"trainingInput.serviceAccount", &in.service_account},
      {"trainingInput.network", &in.network},
      {"lockstep.runtime", &job.lockstep.runtime},
  };
  for (const auto& [path, text] : texts) {
    LOCKSTEP_RETURN_IF_ERROR(CheckText(*text, path));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      CheckText(in.job_dir, "trainingInput.jobDir", kMaxPath));
  for (size_t i = 0; i < in.package_uris.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckText(in.package_uris[i],
                  fmt::format("trainingInput.packageUris[{}]", i), kMaxPath));
  }
  for (const auto& [from, to] : job.lockstep.images) {
    LOCKSTEP_RETURN_IF_ERROR(CheckText(from, "lockstep.images"));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(to, "lockstep.images"));
    if (from.empty()) {
      return InvalidArgument(
          "lockstep.images: \"\" is a prefix of every "
          "image; name a registry or a repository");
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckReplicaTexts(in.master, kMasterNames));
  LOCKSTEP_RETURN_IF_ERROR(CheckReplicaTexts(in.worker, kWorkerNames));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckReplicaTexts(in.parameter_server, kParameterServerNames));
  return CheckReplicaTexts(in.evaluator, kEvaluatorNames);
}

Status RefuseSearches(const TrainingInput& input) {
  if (input.has_hyperparameters) {
    return InvalidArgument(
        "trainingInput.hyperparameters: lockstep does not tune; submit one job "
        "for each set of values, as arguments after --");
  }
  if (input.has_nas_job_spec) {
    return InvalidArgument(
        "trainingInput.nasJobSpec: lockstep does not search architectures; "
        "leave it out");
  }
  return OkStatus();
}

}  // namespace lockstep
