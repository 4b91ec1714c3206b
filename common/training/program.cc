#include "common/training/program.h"

#include "common/model/limits.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

constexpr size_t kMaxPackages = 100;

bool IsModuleName(std::string_view name) {
  while (true) {
    const size_t dot = name.find('.');
    if (!IsEnvironmentName(name.substr(0, dot))) return false;  // [A-Za-z_]\w*
    if (dot == name.npos) return true;
    name.remove_prefix(dot + 1);
  }
}

Status CheckContainer(const TrainingJob& job) {
  const TrainingInput& input = job.training_input;
  const auto excluded = [](const std::string& path,
                           const std::string& instead) {
    return InvalidArgument(
        "{}: is for a Python package, but "
        "masterConfig.imageUri names a container; {}",
        path, instead);
  };
  const std::string leave = "leave one of them out";
  if (!input.runtime_version.empty()) {
    return excluded("trainingInput.runtimeVersion", leave);
  }
  if (!input.package_uris.empty()) {
    return excluded("trainingInput.packageUris", leave);
  }
  if (!input.python_module.empty()) {
    return excluded(
        "trainingInput.pythonModule",
        "give the module as arguments: -- -m " + input.python_module);
  }
  if (!job.lockstep.runtime.empty()) {
    return excluded("lockstep.runtime", leave);
  }
  return OkStatus();
}

Status CheckPackage(const TrainingJob& job) {
  const TrainingInput& input = job.training_input;
  const bool nothing = input.package_uris.empty() &&
                       input.python_module.empty() &&
                       input.runtime_version.empty();
  if (nothing) {
    return InvalidArgument(
        "trainingInput: has no program: give masterConfig.imageUri "
        "(--master-image-uri), or packageUris, pythonModule and "
        "runtimeVersion");
  }
  if (input.package_uris.empty()) {
    return InvalidArgument(
        "trainingInput.packageUris: is empty: a job "
        "without an image needs the package that holds "
        "pythonModule (--package-path)");
  }
  if (input.package_uris.size() > kMaxPackages) {
    return InvalidArgument(
        "trainingInput.packageUris: has {} packages; at "
        "most {} are allowed",
        input.package_uris.size(), kMaxPackages);
  }
  if (input.python_module.empty()) {
    return InvalidArgument(
        "trainingInput.pythonModule: is missing: name the "
        "module to run, such as trainer.task");
  }
  if (!IsModuleName(input.python_module)) {
    return InvalidArgument(
        "trainingInput.pythonModule: \"{}\" is not a module; "
        "give a name such as trainer.task, without .py",
        input.python_module.substr(0, 80));
  }
  if (input.runtime_version.empty() && job.lockstep.runtime.empty()) {
    return InvalidArgument(
        "trainingInput.runtimeVersion: is missing: give "
        "it, or lockstep.runtime, or run a container by "
        "masterConfig.imageUri");
  }
  return OkStatus();
}

Status CheckDisk(const ReplicaConfig& config, const std::string& path,
                 std::vector<std::string>* notes) {
  if (!config.disk_config) return OkStatus();
  const std::string& type = config.disk_config->boot_disk_type;
  if (!type.empty() && type != "pd-ssd" && type != "pd-standard") {
    return InvalidArgument(
        "{}.diskConfig.bootDiskType: there is no {}; "
        "pd-ssd and pd-standard are",
        path, type);
  }
  notes->push_back(path +
                   ".diskConfig: is not used: a task writes to the disk "
                   "of its node");
  return OkStatus();
}

}  // namespace

bool IsContainer(const TrainingInput& input) {
  return !input.master.config.image_uri.empty();
}

Status CheckArguments(const std::vector<std::string>& args,
                      const std::string& path) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].size() > kMaxArgument) {
      return InvalidArgument(
          "{}[{}]: has {} bytes; Linux allows at most {} in "
          "one argument: put it into a file",
          path, i, args[i].size(), kMaxArgument);
    }
    if (args[i].find('\0') != std::string::npos) {
      return InvalidArgument("{}[{}]: holds a NUL byte", path, i);
    }
  }
  return OkStatus();
}

Status CheckProgram(const TrainingJob& job) {
  LOCKSTEP_RETURN_IF_ERROR(IsContainer(job.training_input) ? CheckContainer(job)
                                                           : CheckPackage(job));
  return CheckArguments(job.training_input.args, "trainingInput.args");
}

Status CheckReplica(const TrainingJob& job, const ReplicaInput& role,
                    const ReplicaNames& names,
                    std::vector<std::string>* notes) {
  const TrainingInput& input = job.training_input;
  const ReplicaConfig& config = role.config;
  const std::string path = names.config;
  if (!config.tpu_tf_version.empty()) {
    return InvalidArgument("{}.tpuTfVersion: there are no TPUs; leave it out",
                           path);
  }
  if (!IsContainer(input) && !config.image_uri.empty()) {
    return InvalidArgument(
        "{}.imageUri: is given, but not masterConfig."
        "imageUri: name an image for the master, which "
        "all others take by default",
        path);
  }
  for (const auto& [name, list] :
       {std::pair("containerCommand", &config.container_command),
        std::pair("containerArgs", &config.container_args)}) {
    const std::string field = path + "." + name;
    if (list->empty()) continue;
    if (!IsContainer(input)) {
      return InvalidArgument(
          "{}: needs a container: give masterConfig."
          "imageUri",
          field);
    }
    if (!input.args.empty()) {
      return InvalidArgument(
          "{}: cannot be combined with trainingInput.args; put all "
          "arguments into containerArgs, or all after --",
          field);
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckArguments(*list, field));
  }
  if (!config.container_command.empty() &&
      config.container_command[0].empty()) {
    return InvalidArgument("{}.containerCommand: names an empty program", path);
  }
  return CheckDisk(config, path, notes);
}

}  // namespace lockstep
