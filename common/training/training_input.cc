#include "common/training/training_input.h"

#include <charconv>

namespace lockstep {
namespace {

constexpr int64_t kMaxSeconds = int64_t{100} * 365 * 86400;
constexpr size_t kNanoDigits = 9;

void Lay(const std::string& over, std::string* base) {
  if (!over.empty()) *base = over;
}
template <typename T>
void Lay(const std::optional<T>& over, std::optional<T>* base) {
  if (over) *base = over;
}
void Lay(const std::vector<std::string>& over, std::vector<std::string>* base) {
  if (!over.empty()) *base = over;
}
void LayByName(const std::map<std::string, std::string>& over,
               std::map<std::string, std::string>* base) {
  for (const auto& [name, value] : over) (*base)[name] = value;
}

void Lay(const ReplicaInput& over, ReplicaInput* base) {
  Lay(over.type, &base->type);
  Lay(over.count, &base->count);
  ReplicaConfig& config = base->config;
  Lay(over.config.accelerator_config, &config.accelerator_config);
  Lay(over.config.disk_config, &config.disk_config);
  Lay(over.config.image_uri, &config.image_uri);
  Lay(over.config.container_command, &config.container_command);
  Lay(over.config.container_args, &config.container_args);
  Lay(over.config.tpu_tf_version, &config.tpu_tf_version);
}

void Lay(const SchedulingInput& over, SchedulingInput* base) {
  Lay(over.max_running_time, &base->max_running_time);
  Lay(over.max_wait_time, &base->max_wait_time);
  Lay(over.priority, &base->priority);
  Lay(over.resilient_to_worker_restart, &base->resilient_to_worker_restart);
  Lay(over.strategy, &base->strategy);
}

void Lay(const TrainingInput& over, TrainingInput* base) {
  Lay(over.scale_tier, &base->scale_tier);
  Lay(over.region, &base->region);
  Lay(over.master, &base->master);
  Lay(over.worker, &base->worker);
  Lay(over.parameter_server, &base->parameter_server);
  Lay(over.evaluator, &base->evaluator);
  Lay(over.package_uris, &base->package_uris);
  Lay(over.python_module, &base->python_module);
  Lay(over.python_version, &base->python_version);
  Lay(over.runtime_version, &base->runtime_version);
  Lay(over.args, &base->args);
  Lay(over.job_dir, &base->job_dir);
  Lay(over.use_chief_in_tf_config, &base->use_chief_in_tf_config);
  Lay(over.scheduling, &base->scheduling);
  Lay(over.service_account, &base->service_account);
  Lay(over.network, &base->network);
  Lay(over.enable_web_access, &base->enable_web_access);
  Lay(over.kms_key_name, &base->kms_key_name);
  base->has_hyperparameters |= over.has_hyperparameters;
  base->has_nas_job_spec |= over.has_nas_job_spec;
}

void Lay(const LockstepInput& over, LockstepInput* base) {
  LayByName(over.env, &base->env);
  if (over.ranks_per_task || over.ranks_per_gpu) {
    base->ranks_per_task = over.ranks_per_task;
    base->ranks_per_gpu = over.ranks_per_gpu;
  }
  Lay(over.restart_budget, &base->restart_budget);
  Lay(over.runtime, &base->runtime);
  LayByName(over.images, &base->images);
  Lay(over.inherited_environment, &base->inherited_environment);
  base->slurm_environment |= over.slurm_environment;
}

// Parses all of `text` as a number of digits only.
bool TakeDigits(std::string_view text, int64_t* value) {
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) {
    return false;
  }
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

TrainingJob Overlay(TrainingJob base, const TrainingJob& over) {
  Lay(over.job_id, &base.job_id);
  if (!over.labels.empty()) base.labels = over.labels;
  Lay(over.training_input, &base.training_input);
  Lay(over.lockstep, &base.lockstep);
  base.ignored.insert(base.ignored.end(), over.ignored.begin(),
                      over.ignored.end());
  return base;
}

StatusOr<Duration> ParseSecondsText(std::string_view text) {
  const Status error = InvalidArgument(
      "\"{}\" is not a number of seconds such as 7200s", text.substr(0, 64));
  if (text.empty() || text.back() != 's') return error;
  std::string_view whole = text.substr(0, text.size() - 1);
  std::string fraction;
  if (const size_t point = whole.find('.'); point != whole.npos) {
    fraction = whole.substr(point + 1);
    whole = whole.substr(0, point);
    if (fraction.empty() || fraction.size() > kNanoDigits) return error;
  }
  fraction.resize(kNanoDigits, '0');
  int64_t seconds = 0;
  int64_t nanos = 0;
  if (!TakeDigits(whole, &seconds) || !TakeDigits(fraction, &nanos) ||
      seconds > kMaxSeconds) {
    return error;
  }
  return std::chrono::seconds(seconds) + Duration(nanos);
}

}  // namespace lockstep
