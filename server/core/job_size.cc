#include "server/core/job_size.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::server {
namespace {

// A container entry, a task with its ranks, or an attempt, without strings.
constexpr size_t kEntryBytes = 64;
constexpr size_t kTaskBytes = 1024;

size_t BytesOf(const std::vector<std::string>& texts) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size() + kEntryBytes;
  return bytes;
}

size_t BytesOf(const std::map<std::string, std::string>& texts) {
  size_t bytes = 0;
  for (const auto& [key, value] : texts) {
    bytes += key.size() + value.size() + kEntryBytes;
  }
  return bytes;
}

size_t BytesOf(const std::vector<TaskStatus>& tasks) {
  size_t bytes = 0;
  for (const TaskStatus& task : tasks) {
    bytes += kTaskBytes * (1 + task.ranks.size());
  }
  return bytes;
}

size_t BytesOf(const std::vector<RoleSpec>& roles) {
  size_t bytes = 0;
  for (const RoleSpec& role : roles) {
    bytes += sizeof(role) + BytesOf(role.argv) + BytesOf(role.environment);
    if (role.container) {
      bytes += role.container->image.size() + BytesOf(role.container->command);
    }
  }
  return bytes;
}

size_t BytesOf(const std::optional<TrainingJob>& training) {
  if (!training) return 0;
  const TrainingInput& in = training->training_input;
  size_t bytes = sizeof(TrainingJob) + BytesOf(training->labels) +
                 BytesOf(in.package_uris) + BytesOf(in.args) +
                 BytesOf(training->lockstep.env) +
                 BytesOf(training->lockstep.images) +
                 BytesOf(training->lockstep.inherited_environment);
  for (const ReplicaInput* replica :
       {&in.master, &in.worker, &in.parameter_server, &in.evaluator}) {
    bytes += BytesOf(replica->config.container_command) +
             BytesOf(replica->config.container_args);
  }
  return bytes;
}

// The memory of one version alone.
size_t OwnBytes(const JobSpec& spec) {
  size_t bytes = sizeof(JobSpec) + spec.name.size() + spec.comment.size() +
                 spec.output_directory.size() + spec.working_directory.size() +
                 spec.job_dir.size() +
                 spec.environment_options.tf_config_job.size() +
                 spec.reduction_plan.size() + spec.progress_pattern.size();
  bytes += BytesOf(spec.labels) + BytesOf(spec.inherited_environment);
  for (const Package& package : spec.packages) {
    bytes += package.digest.size() + package.file_name.size() + 2 * kEntryBytes;
  }
  return bytes;
}

template <typename T>
void Add(const Shared<T>& value, std::vector<SharedPart>* parts) {
  if (value.identity() == nullptr) return;
  parts->push_back({value.identity(), BytesOf(value.get())});
}

}  // namespace

size_t SpecBytes(const JobSpec& spec) {
  return OwnBytes(spec) + BytesOf(spec.roles.get()) + BytesOf(spec.argv.get()) +
         BytesOf(spec.environment.get());
}

std::vector<SharedPart> SharedParts(const Job& job) {
  std::vector<SharedPart> parts;
  Add(job.spec.roles, &parts);
  Add(job.spec.argv, &parts);
  Add(job.spec.environment, &parts);
  Add(job.training, &parts);
  return parts;
}

size_t JobBytes(const Job& job) {
  size_t bytes = sizeof(Job) + OwnBytes(job.spec) + BytesOf(job.tasks) +
                 job.reduction_plan.size() + BytesOf(job.artifacts);
  for (const Attempt& attempt : job.attempts) {
    bytes += kEntryBytes + BytesOf(attempt.tasks);
  }
  for (const Event& event : job.events) {
    bytes += kEntryBytes + event.message.size();
  }
  for (const InPlaceRecovery& recovery : job.in_place_recoveries) {
    bytes += kEntryBytes + sizeof(recovery) + recovery.cause.message.size();
  }
  bytes += job.lineage.size() * sizeof(LineageEntry);
  return bytes;
}

}  // namespace lockstep::server
