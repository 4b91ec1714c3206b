#include "common/training/translate.h"

#include <algorithm>

#include "common/model/names.h"
#include "common/training/program.h"
#include "common/training/roles.h"
#include "common/training/texts.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxPriority = 1000;
constexpr int64_t kMaxRanksPerTask = 65536;
constexpr int64_t kMaxRestartBudget = 1'000'000;
constexpr Duration kMinMaxWaitTime = std::chrono::seconds(1800);

// A place with a scheme ("gs://bucket/dir") is the program's own business.
class Translator {
 public:
  Translator(const TrainingJob& job, const Site& site)
      : job_(job), input_(job.training_input), site_(site) {}

  StatusOr<TrainingPlan> Run() {
    LOCKSTEP_RETURN_IF_ERROR(CheckTexts(job_));
    LOCKSTEP_RETURN_IF_ERROR(RefuseUnsupported());
    LOCKSTEP_RETURN_IF_ERROR(SetJob());
    LOCKSTEP_RETURN_IF_ERROR(SetScheduling());
    LOCKSTEP_RETURN_IF_ERROR(SetLockstep());
    LOCKSTEP_RETURN_IF_ERROR(SetProgram());
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto roles, ResolveRoles(input_, site_.machines, &plan_.notes));
    for (const RoleMachines& role : roles) {
      LOCKSTEP_RETURN_IF_ERROR(AddRole(role));
    }
    const bool has_ps = std::any_of(
        roles.begin(), roles.end(),
        [](const RoleMachines& role) { return role.type == TaskType::kPs; });
    plan_.spec.restart_worker_alone =
        has_ps &&
        !input_.scheduling.resilient_to_worker_restart.value_or(false);
    SetChief();
    SetPool();
    NoteTaken();
    return std::move(plan_);
  }

 private:
  bool in_container() const { return IsContainer(input_); }

  void Note(const std::string& path, const std::string& sentence) {
    plan_.notes.push_back(path + ": " + sentence);
  }

  Status RefuseUnsupported() {
    LOCKSTEP_RETURN_IF_ERROR(RefuseSearches(input_));
    if (!input_.kms_key_name.empty()) {
      return InvalidArgument(
          "trainingInput.encryptionConfig: lockstep has no keys and encrypts "
          "nothing that a job writes; leave it out, and let jobDir be on an "
          "encrypted file system");
    }
    return OkStatus();
  }

  Status SetJob() {
    JobSpec& spec = plan_.spec;
    if (!IsJobName(job_.job_id)) {
      return InvalidArgument(
          "jobId: \"{}\" is no name of a job: a letter, "
          "then letters, digits, \"_\" or \"-\", at most 63 "
          "in all",
          job_.job_id.substr(0, 80));
    }
    spec.name = job_.job_id;
    spec.kind = JobKind::kProgram;
    spec.labels = job_.labels;
    const std::string& dir = input_.job_dir;
    if (!dir.empty() && !HasScheme(dir)) {
      if (dir[0] != '/') {
        return InvalidArgument(
            "trainingInput.jobDir: \"{}\" is neither "
            "absolute nor has a scheme; a path such as "
            "/data/models/a, or gs://bucket/a, works",
            dir);
      }
      spec.output_directory = dir;
    }
    spec.job_dir = dir;
    return OkStatus();
  }

  Status SetScheduling() {
    const SchedulingInput& in = input_.scheduling;
    const std::string path = "trainingInput.scheduling.";
    plan_.spec.max_running_time =
        in.max_running_time.value_or(kDefaultMaxRunningTime);
    if (*plan_.spec.max_running_time <= Duration{}) {
      return InvalidArgument("{}maxRunningTime: must be more than 0s", path);
    }
    if (in.max_wait_time && *in.max_wait_time < kMinMaxWaitTime) {
      return InvalidArgument("{}maxWaitTime: must be at least 1800s, not {:g}s",
                             path, ToSeconds(*in.max_wait_time));
    }
    plan_.spec.max_wait_time = in.max_wait_time;
    const int64_t priority = in.priority.value_or(0);
    if (priority < 0 || priority > kMaxPriority) {
      return InvalidArgument("{}priority: must be 0..{}, not {}", path,
                             kMaxPriority, priority);
    }
    plan_.spec.priority = static_cast<int32_t>(priority);
    const std::vector<std::string> strategies = {"ON_DEMAND", "LOW_COST",
                                                 "STRATEGY_UNSPECIFIED"};
    if (!in.strategy.empty() && std::find(strategies.begin(), strategies.end(),
                                          in.strategy) == strategies.end()) {
      return InvalidArgument("{}strategy: there is no {}; ON_DEMAND works",
                             path, in.strategy);
    }
    if (in.strategy == "LOW_COST") {
      Note(path + "strategy",
           "LOW_COST is taken as ON_DEMAND: no machine "
           "here is cheaper because it may be taken away");
    }
    return OkStatus();
  }

  Status SetLockstep() {
    const LockstepInput& in = job_.lockstep;
    for (const auto& [name, value] : in.env) {
      if (!IsEnvironmentName(name)) {
        return InvalidArgument(
            "lockstep.env: \"{}\" is no name of a variable: "
            "a letter or \"_\", then letters, digits or "
            "\"_\"",
            name.substr(0, 80));
      }
      // "NAME=value" is one string to the kernel.
      LOCKSTEP_RETURN_IF_ERROR(
          CheckArguments({name + "=" + value}, "lockstep.env." + name));
    }
    plan_.spec.environment = in.env;
    plan_.spec.inherited_environment = in.inherited_environment;
    plan_.spec.slurm_environment = in.slurm_environment;
    const int64_t budget =
        in.restart_budget.value_or(plan_.spec.restart_budget);
    if (budget < 0 || budget > kMaxRestartBudget) {
      return InvalidArgument("lockstep.restart.budget: must be 0..{}, not {}",
                             kMaxRestartBudget, budget);
    }
    plan_.spec.restart_budget = static_cast<int32_t>(budget);
    const int64_t ranks = in.ranks_per_task.value_or(1);
    if (ranks < 1 || ranks > kMaxRanksPerTask) {
      return InvalidArgument(
          "lockstep.ranksPerTask: must be 1..{} or gpu, not "
          "{}",
          kMaxRanksPerTask, ranks);
    }
    return OkStatus();
  }

  Status SetProgram() {
    LOCKSTEP_RETURN_IF_ERROR(CheckProgram(job_));
    if (in_container()) {
      if (!input_.python_version.empty()) {
        Note("trainingInput.pythonVersion",
             "is not used: the image has its own Python");
      }
      return OkStatus();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        const ResolvedRuntime found,
        ResolveRuntime(site_, job_.lockstep.runtime, input_.runtime_version));
    plan_.spec.runtime = found.runtime;
    const std::string& name = found.runtime.name;
    const std::string interpreter =
        name.empty() ? found.runtime.python
                     : fmt::format("{} ({})", name, found.runtime.python);
    if (found.version_unknown) {
      Note("trainingInput.runtimeVersion",
           fmt::format("{} is no runtime of this site; the default "
                       "interpreter is taken: {}",
                       input_.runtime_version, interpreter));
      plan_.events.push_back(plan_.notes.back());
    }
    if (!input_.python_version.empty()) {
      Note("trainingInput.pythonVersion",
           fmt::format("is not used: the runtime says which Python it is: {}",
                       interpreter));
    }
    return OkStatus();
  }

  Status AddRole(const RoleMachines& role) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckReplica(job_, *role.input, role.names, &plan_.notes));
    const ReplicaConfig& config = role.input->config;
    std::vector<std::string> args =
        config.container_args.empty() ? input_.args : config.container_args;
    const bool own_args = !args.empty();
    if (!input_.job_dir.empty()) {
      args.push_back("--job-dir");
      args.push_back(input_.job_dir);
    }
    RoleSpec spec;
    if (in_container()) {
      spec.container = Container{ImageOf(role), config.container_command};
      if (config.container_command.empty() && !own_args && !args.empty()) {
        Note("trainingInput.jobDir",
             "is an argument (--job-dir) and so replaces the CMD of image " +
                 spec.container->image);
      }
    } else {
      spec.argv = {plan_.spec.runtime.python, "-m", input_.python_module};
    }
    spec.argv.insert(spec.argv.end(), args.begin(), args.end());
    AddToSpec(role, std::move(spec));
    return OkStatus();
  }

  // What the job says beats what the site says.
  std::string ImageOf(const RoleMachines& role) {
    const std::string& own = role.input->config.image_uri;
    const std::string& uri = own.empty() ? input_.master.config.image_uri : own;
    std::string image = RewriteImage(uri, job_.lockstep.images);
    if (image == uri) image = RewriteImage(uri, site_.images);
    if (image != uri) {
      Note(std::string(role.names.config) + ".imageUri",
           fmt::format("{} is {} here", uri, image));
    }
    return image;
  }

  void AddToSpec(const RoleMachines& role, RoleSpec spec) {
    const Machine& machine = role.machine;
    spec.type = role.type;
    spec.count = role.count;
    spec.resources = machine.request;
    spec.machine =
        MachineType{machine.type, machine.nominal, machine.ml_units_per_hour};
    const bool trains =
        role.type == TaskType::kChief || role.type == TaskType::kWorker;
    if (trains && job_.lockstep.ranks_per_gpu) {
      spec.ranks_per_task = std::max(1, machine.request.gpus);
    } else if (trains) {
      spec.ranks_per_task =
          static_cast<int32_t>(job_.lockstep.ranks_per_task.value_or(1));
    }
    plan_.spec.roles.push_back(std::move(spec));
  }

  // Of a container the flag decides; of a package the runtime's TensorFlow,
  // which refuses the other name.
  void SetChief() {
    const std::optional<bool>& flag = input_.use_chief_in_tf_config;
    if (in_container()) {
      plan_.spec.master_in_tf_config = !flag.value_or(true);
      if (plan_.spec.master_in_tf_config) {
        Note("trainingInput.useChiefInTfConfig",
             "is false: the first task is \"master\" in TF_CONFIG, which "
             "TensorFlow 2 refuses");
      }
      return;
    }
    const bool chief = !input_.runtime_version.starts_with("1.");
    plan_.spec.master_in_tf_config = !chief;
    if (flag && *flag != chief) {
      Note("trainingInput.useChiefInTfConfig",
           fmt::format("counts for containers only: the first task is \"{}\" "
                       "in TF_CONFIG",
                       chief ? "chief" : "master"));
    }
  }

  // A region is a pool of nodes.
  void SetPool() {
    const std::string& region = input_.region;
    plan_.spec.pool = site_.default_pool;
    if (region.empty()) return;
    const auto known = site_.regions.find(region);
    if (known != site_.regions.end()) {
      if (!known->second.pool.empty()) plan_.spec.pool = known->second.pool;
      if (!known->second.note.empty()) {
        Note("trainingInput.region", region + " " + known->second.note);
      }
      return;
    }
    Note("trainingInput.region",
         fmt::format(
             "{} is taken by the default pool, {}", region,
             site_.default_pool.empty() ? "all nodes" : site_.default_pool));
    plan_.events.push_back(plan_.notes.back());
  }

  void NoteTaken() {
    if (!input_.service_account.empty()) {
      Note("trainingInput.serviceAccount",
           "is not used: tasks run as the user that the node gives them");
    }
    if (!input_.network.empty()) {
      Note("trainingInput.network",
           "is not used: tasks are on the network of their nodes");
    }
    if (input_.enable_web_access.value_or(false)) {
      Note("trainingInput.enableWebAccess",
           "is not used: there is no shell in a web page; log in to the node");
    }
    for (const std::string& field : job_.ignored) {
      Note(field, "is set by the service; what was given is left out");
    }
  }

  const TrainingJob& job_;
  const TrainingInput& input_;
  const Site& site_;
  TrainingPlan plan_;
};

}  // namespace

bool HasScheme(const std::string& path) {
  return path.find("://") != std::string::npos;
}

StatusOr<TrainingPlan> Translate(const TrainingJob& job, const Site& site) {
  return Translator(job, site).Run();
}

}  // namespace lockstep
