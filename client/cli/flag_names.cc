#include "client/cli/flag_names.h"

#include <span>
#include <string_view>

namespace lockstep::cli {
namespace {

struct FieldFlag {
  std::string_view field;
  std::string_view flag;
};

constexpr FieldFlag kTraining[] = {
    {"jobId", "JOB"},
    {"labels", "--labels"},
    {"packages", "--packages"},
    {"lockstep.env", "--env"},
    {"lockstep.ranksPerTask", "--ranks-per-task"},
    {"lockstep.runtime", "--runtime"},
    {"trainingInput.scaleTier", "--scale-tier"},
    {"trainingInput.region", "--region"},
    {"trainingInput.masterType", "--master-machine-type"},
    {"trainingInput.masterConfig.imageUri", "--master-image-uri"},
    {"trainingInput.masterConfig.acceleratorConfig", "--master-accelerator"},
    {"trainingInput.workerType", "--worker-machine-type"},
    {"trainingInput.workerCount", "--worker-count"},
    {"trainingInput.workerConfig.imageUri", "--worker-image-uri"},
    {"trainingInput.workerConfig.acceleratorConfig", "--worker-accelerator"},
    {"trainingInput.parameterServerType", "--parameter-server-machine-type"},
    {"trainingInput.parameterServerCount", "--parameter-server-count"},
    {"trainingInput.parameterServerConfig.imageUri",
     "--parameter-server-image-uri"},
    {"trainingInput.parameterServerConfig.acceleratorConfig",
     "--parameter-server-accelerator"},
    {"trainingInput.packageUris", "--packages"},
    {"trainingInput.pythonModule", "--module-name"},
    {"trainingInput.pythonVersion", "--python-version"},
    {"trainingInput.runtimeVersion", "--runtime-version"},
    {"trainingInput.args", "the arguments behind --"},
    {"trainingInput.jobDir", "--job-dir"},
    {"trainingInput.useChiefInTfConfig", "--use-chief-in-tf-config"},
    {"trainingInput.serviceAccount", "--service-account"},
    {"trainingInput.network", "--network"},
    {"trainingInput.enableWebAccess", "--enable-web-access"},
    {"trainingInput.encryptionConfig", "--kms-key"},
};

constexpr FieldFlag kSubmit[] = {
    {"spec.name", "--name"},
    {"spec.kind", "--kind"},
    {"spec.argv", "the program behind --"},
    {"spec.environment", "--env"},
    {"spec.output_directory", "--output"},
    {"spec.checkpoint.interval_steps", "--checkpoint-interval-steps"},
    {"spec.checkpoint.keep", "--checkpoint-keep"},
    {"spec.restart_budget", "--restart-budget"},
    {"spec.max_running_time", "--max-running-time"},
    {"spec.max_wait_time", "--max-wait-time"},
    {"spec.priority", "--priority"},
    {"spec.labels", "--label"},
    {"spec.working_directory", "--working-directory"},
    {"spec.comment", "--comment"},
    {"spec.reduction_plan", "--reduction-plan"},
    {"spec.pool", "--pool"},
    {"spec.hang", "--hang"},
    {"spec.stall_after", "--stall-after"},
    {"spec.progress_pattern", "--progress-pattern"},
    {"spec.node_lost_timeout", "--node-lost-timeout"},
    {"spec.node_loss", "--node-lost-timeout"},
    {"spec.idle_notice", "--idle-notice"},
    {"spec.idle_stop", "--idle-stop"},
    {"spec.warm_starts", "--warm-starts"},
    {"spec.spares", "--spares"},
    {"spec.hold", "--hold"},
    {"spec.elastic_min_tasks", "--elastic"},
    {"spec.rescale", "--rescale"},
    {"spec.slurm_environment", "--slurm-env"},
    // A flag applies to all roles.
    {"spec.roles[0].count", "--tasks"},
    {"spec.roles[1].count", "--tasks"},
    {"spec.roles[0].ranks_per_task", "--ranks-per-task"},
    {"spec.roles[0].resources.cpus", "--cpus"},
    {"spec.roles[0].resources.memory_bytes", "--memory"},
    {"spec.roles[0].resources.gpus", "--gpus"},
    {"spec.roles[0].resources.gpu_type", "--gpu-type"},
};

// True if `text` begins with `field` and no further name character follows.
bool BeginsWith(std::string_view text, std::string_view field) {
  if (!text.starts_with(field)) return false;
  text.remove_prefix(field.size());
  return text.starts_with(':') || text.starts_with('.') ||
         text.starts_with('[');
}

std::string With(std::span<const FieldFlag> flags, const std::string& text) {
  const FieldFlag* longest = nullptr;
  for (const FieldFlag& each : flags) {
    if (BeginsWith(text, each.field) &&
        (longest == nullptr || each.field.size() > longest->field.size())) {
      longest = &each;
    }
  }
  if (longest == nullptr) return text;
  return std::string(longest->flag) + text.substr(longest->field.size());
}

Status With(std::span<const FieldFlag> flags, const Status& status) {
  if (status.ok()) return status;
  const Status out(status.code(), With(flags, Message(status)));
  const std::string reason = ReasonOf(status);
  return reason.empty() ? out : WithReason(out, reason);
}

}  // namespace

std::string WithTrainingFlags(const std::string& text) {
  return With(kTraining, text);
}

std::string WithSubmitFlags(const std::string& text) {
  return With(kSubmit, text);
}

Status WithTrainingFlags(const Status& status) {
  return With(kTraining, status);
}

Status WithSubmitFlags(const Status& status) { return With(kSubmit, status); }

}  // namespace lockstep::cli
