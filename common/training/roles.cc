#include "common/training/roles.h"

#include "common/model/limits.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

std::string KnownTiers(const std::string& wanted, const MachineTable& table) {
  std::vector<std::string> known = {kCustomTier};
  for (const auto& [name, tier] : table.tiers) known.push_back(name);
  const std::string nearest = Nearest(wanted, known);
  if (!nearest.empty()) return "did you mean " + nearest + "?";
  return fmt::format("there are {}", fmt::join(known, ", "));
}

// Rejects machines given by the job itself in a tier of the table.
Status RefuseMachines(const ReplicaInput& role, const ReplicaNames& names,
                      const std::string& tier) {
  const auto refuse = [&](const std::string& path) {
    return InvalidArgument(
        "{}: is for scaleTier CUSTOM only, and the tier is "
        "{}; set scaleTier: CUSTOM, or leave this out",
        path, tier);
  };
  if (!role.type.empty()) return refuse(names.type);
  if (role.count.value_or(0) != 0) return refuse(names.count);
  if (role.config.accelerator_config) {
    return refuse(std::string(names.config) + ".acceleratorConfig");
  }
  return OkStatus();
}

StatusOr<Machine> MachineOf(const ReplicaInput& role, const ReplicaNames& names,
                            const MachineTable& table) {
  const std::string path = std::string(names.config) + ".acceleratorConfig";
  const AcceleratorConfig gpus =
      role.config.accelerator_config.value_or(AcceleratorConfig{0, ""});
  const int64_t count = gpus.count.value_or(0);
  const bool none =
      gpus.type.empty() || gpus.type == "ACCELERATOR_TYPE_UNSPECIFIED";
  if (none && count != 0) {
    return InvalidArgument(
        "{}.type: is missing: give the GPU type of the {}, "
        "such as NVIDIA_TESLA_T4",
        path, count);
  }
  if (!none && count < 1) {
    return InvalidArgument(
        "{}.count: must be 1 or more GPUs, not {}; leave "
        "acceleratorConfig out for none",
        path, count);
  }
  return ResolveMachine(table, role.type, none ? "" : gpus.type, count,
                        names.type, path);
}

class Roles {
 public:
  Roles(const TrainingInput& input, const MachineTable& table,
        std::vector<std::string>* notes)
      : input_(input), table_(table), notes_(notes) {}

  StatusOr<std::vector<RoleMachines>> Resolve() {
    tier_ = input_.scale_tier;
    if (tier_.empty()) {
      tier_ = "BASIC";
      if (input_.master.type.empty()) {
        notes_->push_back("trainingInput.scaleTier: is not given: BASIC");
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(tier_ == kCustomTier ? Custom() : FromTier());
    int64_t tasks = 0;
    for (const RoleMachines& role : roles_) tasks += role.count;
    if (tasks > kMaxTfConfigTasks) {
      return InvalidArgument(
          "trainingInput.workerCount: the job has {} tasks; "
          "TF_CONFIG has room for the addresses of {}",
          tasks, kMaxTfConfigTasks);
    }
    NoteUnused(input_.worker, kWorkerNames, TaskType::kWorker);
    NoteUnused(input_.parameter_server, kParameterServerNames, TaskType::kPs);
    NoteUnused(input_.evaluator, kEvaluatorNames, TaskType::kEvaluator);
    return std::move(roles_);
  }

 private:
  void Add(TaskType type, int64_t count, Machine machine,
           const ReplicaInput& input, const ReplicaNames& names) {
    roles_.push_back(
        {type, static_cast<int32_t>(count), std::move(machine), &input, names});
  }

  Status Custom() {
    if (input_.master.type.empty()) {
      return InvalidArgument(
          "trainingInput.masterType: is missing: scaleTier CUSTOM needs the "
          "master's machine type, such as n1-standard-8");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(Machine machine,
                              MachineOf(input_.master, kMasterNames, table_));
    Add(TaskType::kChief, 1, std::move(machine), input_.master, kMasterNames);
    LOCKSTEP_RETURN_IF_ERROR(
        AddCounted(TaskType::kWorker, input_.worker, kWorkerNames));
    LOCKSTEP_RETURN_IF_ERROR(AddCounted(TaskType::kPs, input_.parameter_server,
                                        kParameterServerNames));
    return AddCounted(TaskType::kEvaluator, input_.evaluator, kEvaluatorNames);
  }

  Status AddCounted(TaskType type, const ReplicaInput& role,
                    const ReplicaNames& names) {
    const int64_t count = role.count.value_or(0);
    if (count < 0) {
      return InvalidArgument("{}: must be 0 or more, not {}", names.count,
                             count);
    }
    if (!role.type.empty() && !role.count) {
      return InvalidArgument("{}: is missing: {} and {} must be given together",
                             names.count, names.type, names.count);
    }
    if (role.type.empty() && count > 0) {
      return InvalidArgument("{}: is missing: {} and {} must be given together",
                             names.type, names.type, names.count);
    }
    if (count == 0) return OkStatus();
    if (count > kMaxTfConfigTasks) {
      return InvalidArgument("{}: must be at most {}, not {}", names.count,
                             kMaxTfConfigTasks, count);
    }
    if (type == TaskType::kEvaluator && count > 1) {
      return InvalidArgument(
          "{}: must be 1, not {}: a job has one evaluator, "
          "which reads its checkpoints",
          names.count, count);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(Machine machine, MachineOf(role, names, table_));
    Add(type, count, std::move(machine), role, names);
    return OkStatus();
  }

  Status FromTier() {
    if (tier_ == "BASIC_TPU") {
      return InvalidArgument(
          "trainingInput.scaleTier: BASIC_TPU: there are no "
          "TPUs; use BASIC_GPU, or CUSTOM with GPUs");
    }
    const auto found = table_.tiers.find(tier_);
    if (found == table_.tiers.end()) {
      return InvalidArgument("trainingInput.scaleTier: there is no {}; {}",
                             tier_, KnownTiers(tier_, table_));
    }
    const std::pair<const ReplicaInput*, ReplicaNames> inputs[] = {
        {&input_.master, kMasterNames},
        {&input_.worker, kWorkerNames},
        {&input_.parameter_server, kParameterServerNames},
        {&input_.evaluator, kEvaluatorNames}};
    for (const auto& [role, names] : inputs) {
      LOCKSTEP_RETURN_IF_ERROR(RefuseMachines(*role, names, tier_));
    }
    const ScaleTier& tier = found->second;
    const std::string path = "trainingInput.scaleTier";
    LOCKSTEP_ASSIGN_OR_RETURN(
        Machine master,
        ResolveMachine(table_, tier.master_type, tier.master_accelerator,
                       tier.master_accelerator_count, path, path));
    Add(TaskType::kChief, 1, std::move(master), input_.master, kMasterNames);
    if (tier.worker_count > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          Machine worker,
          ResolveMachine(table_, tier.worker_type, "", 0, path, path));
      Add(TaskType::kWorker, tier.worker_count, std::move(worker),
          input_.worker, kWorkerNames);
    }
    if (tier.parameter_server_count > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          Machine ps, ResolveMachine(table_, tier.parameter_server_type, "", 0,
                                     path, path));
      Add(TaskType::kPs, tier.parameter_server_count, std::move(ps),
          input_.parameter_server, kParameterServerNames);
    }
    return OkStatus();
  }

  void NoteUnused(const ReplicaInput& input, const ReplicaNames& names,
                  TaskType type) {
    for (const RoleMachines& role : roles_) {
      if (role.type == type) return;
    }
    if (input.config == ReplicaConfig{}) return;
    notes_->push_back(fmt::format("{}: is not used: the job has no {}",
                                  names.config, Name(type)));
  }

  const TrainingInput& input_;
  const MachineTable& table_;
  std::vector<std::string>* const notes_;
  std::string tier_;
  std::vector<RoleMachines> roles_;
};

}  // namespace

StatusOr<std::vector<RoleMachines>> ResolveRoles(
    const TrainingInput& input, const MachineTable& table,
    std::vector<std::string>* notes) {
  return Roles(input, table, notes).Resolve();
}

}  // namespace lockstep
