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
bool HasScheme(const std::string& path) {
  return path.find("://") != std::string::npos;
}

std::string RewriteImage(const std::string& image,
                         const std::map<std::string, std::string>& rewrites) {
  const std::pair<const std::string, std::string>* longest = nullptr;
  for (const auto& rewrite : rewrites) {
    if (image.starts_with(rewrite.first) &&
        (!longest || rewrite.first.size() > longest->first.size())) {
      longest = &rewrite;
    }
  }
  if (!longest) return image;
  return longest->second + image.substr(longest->first.size());
}

class Translator {
 public:
  Translator(const TrainingJob& job, const MachineTable& table)
      : job_(job), input_(job.training_input), table_(table) {}

  StatusOr<TrainingPlan> Run() {
    LOCKSTEP_RETURN_IF_ERROR(CheckTexts(job_));
    LOCKSTEP_RETURN_IF_ERROR(RefuseUnsupported());
    LOCKSTEP_RETURN_IF_ERROR(SetJob());
    LOCKSTEP_RETURN_IF_ERROR(SetScheduling());
    LOCKSTEP_RETURN_IF_ERROR(SetLockstep());
    LOCKSTEP_RETURN_IF_ERROR(SetProgram());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto roles,
                              ResolveRoles(input_, table_, &plan_.notes));
    plan_.ml_units_per_hour = 0;
    for (const RoleMachines& role : roles) {
      LOCKSTEP_RETURN_IF_ERROR(AddRole(role));
    }
    const bool has_ps = std::any_of(
        roles.begin(), roles.end(),
        [](const RoleMachines& role) { return role.type == TaskType::kPs; });
    plan_.restart_lost_worker_alone =
        has_ps &&
        !input_.scheduling.resilient_to_worker_restart.value_or(false);
    SetChief();
    NoteTaken();
    return std::move(plan_);
  }

 private:
  bool in_container() const { return IsContainer(input_); }

  void Note(const std::string& path, const std::string& sentence) {
    plan_.notes.push_back(path + ": " + sentence);
  }

  Status RefuseUnsupported() {
    if (input_.has_hyperparameters) {
      return InvalidArgument(
          "trainingInput.hyperparameters: lockstep does not tune; submit a job "
          "for each set of values, as arguments behind --");
    }
    if (input_.has_nas_job_spec) {
      return InvalidArgument(
          "trainingInput.nasJobSpec: lockstep does not "
          "search architectures; leave it out");
    }
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
    plan_.job_dir = dir;
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
    plan_.packages = input_.package_uris;
    plan_.python_module = input_.python_module;
    plan_.runtime = job_.lockstep.runtime;
    plan_.runtime_version = input_.runtime_version;
    return OkStatus();
  }

  Status AddRole(const RoleMachines& role) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckReplica(job_, *role.input, role.names, &plan_.notes));
    const ReplicaConfig& config = role.input->config;
    TrainingRole out{role.type, role.count, role.machine, "", {}, {}};
    out.args =
        config.container_args.empty() ? input_.args : config.container_args;
    const bool own_args = !out.args.empty();
    if (!input_.job_dir.empty()) {
      out.args.push_back("--job-dir");
      out.args.push_back(input_.job_dir);
    }
    if (in_container()) {
      const std::string& uri = config.image_uri.empty()
                                   ? input_.master.config.image_uri
                                   : config.image_uri;
      out.image = RewriteImage(uri, job_.lockstep.images);
      if (out.image != uri) {
        Note(std::string(role.names.config) + ".imageUri",
             fmt::format("{} is {} here", uri, out.image));
      }
      out.command = config.container_command;
      if (out.command.empty() && !own_args && !out.args.empty()) {
        Note("trainingInput.jobDir",
             "is an argument (--job-dir) and so replaces the CMD of image " +
                 out.image);
      }
    } else {
      out.command = {"python3", "-m", input_.python_module};
    }
    AddToSpec(out);
    plan_.roles.push_back(std::move(out));
    return OkStatus();
  }

  void AddToSpec(const TrainingRole& role) {
    RoleSpec spec;
    spec.type = role.type;
    spec.count = role.count;
    spec.resources = role.machine.request;
    spec.argv = role.command;
    spec.argv.insert(spec.argv.end(), role.args.begin(), role.args.end());
    const bool trains =
        role.type == TaskType::kChief || role.type == TaskType::kWorker;
    if (trains && job_.lockstep.ranks_per_gpu) {
      spec.ranks_per_task = std::max(1, role.machine.request.gpus);
    } else if (trains) {
      spec.ranks_per_task =
          static_cast<int32_t>(job_.lockstep.ranks_per_task.value_or(1));
    }
    plan_.spec.roles.push_back(std::move(spec));
    std::optional<double>& units = plan_.ml_units_per_hour;
    if (units && role.machine.ml_units_per_hour) {
      *units += role.count * *role.machine.ml_units_per_hour;
    } else {
      units.reset();
    }
  }

  // Of a container the flag decides; of a package the runtime's TensorFlow,
  // which refuses the other name.
  void SetChief() {
    const std::optional<bool>& flag = input_.use_chief_in_tf_config;
    if (in_container()) {
      plan_.use_chief = flag.value_or(true);
      if (!plan_.use_chief) {
        Note("trainingInput.useChiefInTfConfig",
             "is false: the first task is \"master\" in TF_CONFIG, which "
             "TensorFlow 2 refuses");
      }
      return;
    }
    plan_.use_chief = !input_.runtime_version.starts_with("1.");
    if (flag && *flag != plan_.use_chief) {
      Note("trainingInput.useChiefInTfConfig",
           fmt::format("counts for containers only: the first task is \"{}\" "
                       "in TF_CONFIG",
                       plan_.use_chief ? "chief" : "master"));
    }
  }

  void NoteTaken() {
    if (!input_.region.empty()) {
      Note("trainingInput.region",
           input_.region + " is taken by the default pool");
    }
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
  const MachineTable& table_;
  TrainingPlan plan_;
};

}  // namespace

StatusOr<TrainingPlan> Translate(const TrainingJob& job,
                                 const MachineTable& table) {
  return Translator(job, table).Run();
}

}  // namespace lockstep
