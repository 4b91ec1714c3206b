#include "client/cli/local_train_spec.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "client/cli/run_spec.h"
#include "common/base/file.h"
#include "common/model/names.h"

namespace lockstep::cli {
namespace {

// In addition to the tasks': rank 0's rendezvous, services, an evaluator.
constexpr int32_t kOtherPorts = 32;
constexpr int32_t kHighestPort = 65535;
constexpr int kMostVariables = 1000;

void AddRole(v1::TaskType type, int32_t count, v1::JobSpec* spec) {
  if (count == 0) return;
  v1::RoleSpec* const role = spec->add_roles();
  role->set_type(type);
  role->set_count(count);
  role->set_ranks_per_task(1);
}

// Names of variables set here, except the launcher's own.
void Inherit(const CliEnvironment& env, v1::JobSpec* spec) {
  for (const auto& [name, value] : env.variables) {
    if (!IsEnvironmentName(name) || IsReservedEnvironmentName(name)) continue;
    if (spec->inherited_environment_size() >= kMostVariables) break;
    spec->add_inherited_environment(name);
  }
}

// "27183-27184", or "" for none.
std::string Range(int32_t first, int32_t count) {
  if (count <= 0) return "";
  return fmt::format(",{}-{}", first, first + count - 1);
}

}  // namespace

std::vector<std::string> LocalTrainNotes(const LocalTrainFlags& flags) {
  std::vector<std::string> notes;
  if (flags.distributed) return notes;
  const std::pair<const char*, bool> counts[] = {
      {"--worker-count", flags.workers_given},
      {"--parameter-server-count", flags.parameter_servers_given},
      {"--evaluator-count", flags.evaluators_given}};
  for (const auto& [flag, given] : counts) {
    if (given) {
      notes.push_back(std::string(flag) +
                      ": is not used without --distributed");
    }
  }
  return notes;
}

StatusOr<v1::JobSpec> BuildLocalTrain(const LocalTrainFlags& flags,
                                      const CliEnvironment& env) {
  if (flags.module_name.empty()) {
    return InvalidArgument(
        "--module-name is required: the module to run, such as trainer.task");
  }
  if (flags.evaluator_count > 1) {
    return InvalidArgument(
        "--evaluator-count {}: a job has at most one evaluator",
        flags.evaluator_count);
  }
  if (flags.start_port + LocalTrainTasks(flags) + kOtherPorts > kHighestPort) {
    return InvalidArgument(
        "--start-port {}: there are no {} ports from there on",
        flags.start_port, LocalTrainTasks(flags) + kOtherPorts);
  }
  v1::JobSpec spec;
  spec.set_name("train");
  spec.set_kind(v1::JOB_KIND_PROGRAM);
  AddRole(v1::TASK_TYPE_CHIEF, 1, &spec);
  if (flags.distributed) {
    AddRole(v1::TASK_TYPE_WORKER, flags.worker_count, &spec);
    AddRole(v1::TASK_TYPE_PS, flags.parameter_server_count, &spec);
    AddRole(v1::TASK_TYPE_EVALUATOR, flags.evaluator_count, &spec);
  }
  spec.mutable_runtime()->set_python(PythonOf(flags.python, env));
  std::vector<std::string> args = flags.args;
  if (!flags.job_dir.empty()) {
    std::string dir = flags.job_dir;
    if (dir.find("://") == std::string::npos) {
      dir = JoinPath(env.working_directory, dir);
      spec.set_output_directory(dir);
    }
    spec.set_job_dir(dir);
    args.push_back("--job-dir");
    args.push_back(dir);
  }
  for (const std::string& arg :
       {spec.runtime().python(), std::string("-m"), flags.module_name}) {
    spec.add_argv(arg);
  }
  for (const std::string& arg : args) spec.add_argv(arg);
  spec.set_restart_budget(0);
  // As on AI Platform. The chief's exit code is returned.
  spec.set_end_with(v1::END_WITH_CHIEF);
  spec.set_empty_tf_config(!flags.distributed);
  // Used until the package's location is known.
  spec.set_working_directory(env.working_directory);
  spec.set_tf_config_job(
      nlohmann::ordered_json({{"job_name", flags.module_name}, {"args", args}})
          .dump());
  Inherit(env, &spec);
  return spec;
}

int32_t LocalTrainTasks(const LocalTrainFlags& flags) {
  return 1 + (flags.distributed
                  ? flags.worker_count + flags.parameter_server_count
                  : 0);
}

std::string LocalTrainPorts(const LocalTrainFlags& flags) {
  const int32_t start = flags.start_port;
  std::string ports = fmt::format("{}", start);
  if (flags.distributed) {
    const int32_t ps = flags.parameter_server_count;
    ports += Range(start + 1 + ps, flags.worker_count);
    ports += Range(start + 1, ps);
  }
  return ports + Range(start + LocalTrainTasks(flags), kOtherPorts);
}

}  // namespace lockstep::cli
