// RankEnvironment: the contracts between launchers and training frameworks.
// docs/environment.md has every variable, and who reads it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/crc32c.h"
#include "common/base/host_port.h"
#include "common/model/cluster_spec.h"

namespace lockstep {
namespace {

using Environment = std::map<std::string, std::string>;

// The longest variable on Linux, "NAME=value" with its final NUL
// (MAX_ARG_STRLEN of include/uapi/linux/binfmts.h).
constexpr size_t kMaxVariable = 128 * 1024 - 1;

// A rank's position. Ranks of chief and workers form the group; ps and
// evaluators follow and belong to no group.
struct Place {
  const TaskSpec* task = nullptr;
  const RankSpec* rank = nullptr;
  // The task's index in the group, and the group's number of tasks.
  int32_t group_rank = 0;
  int32_t group_size = 0;
};

bool IsInGroup(TaskType type) {
  return type == TaskType::kChief || type == TaskType::kWorker;
}

Place FindPlace(const ClusterSpec& spec, int32_t rank) {
  Place place;
  for (const TaskSpec& task : spec.tasks) {
    for (const RankSpec& r : task.ranks) {
      if (r.rank != rank) continue;
      place.task = &task;
      place.rank = &r;
      place.group_rank = place.group_size;
    }
    if (IsInGroup(task.type)) ++place.group_size;
  }
  return place;
}

enum class FirstTask { kChief, kMaster };

// `trial` is for CLUSTER_SPEC only, whose readers require the key.
std::string ClusterText(const ClusterSpec& spec, const TaskSpec& self,
                        FirstTask first, bool with_trial, bool with_job) {
  const auto name = [first](TaskType type) {
    return type == TaskType::kChief && first == FirstTask::kMaster
               ? std::string("master")
               : std::string(Name(type));
  };
  nlohmann::ordered_json text;
  text["cluster"] = nlohmann::ordered_json::object();
  text["task"] = nlohmann::ordered_json::object();
  if (with_trial || !spec.environment_options.empty_tf_config) {
    for (const TaskSpec& task : spec.tasks) {
      // TensorFlow rejects an evaluator here.
      if (task.type == TaskType::kEvaluator) continue;
      text["cluster"][name(task.type)].push_back(task.address);
    }
    text["task"] = {{"type", name(self.type)}, {"index", self.index}};
  }
  if (with_trial) text["task"]["trial"] = "";
  text["environment"] = "cloud";
  if (with_job) text["job"] = spec.environment_options.tf_config_job;
  return text.dump(-1, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

// Omits "job", which frameworks do not read, if the text is too long. Omits the
// variable if it is still too long.
void PutCluster(const std::string& name, const ClusterSpec& spec,
                const TaskSpec& self, FirstTask first, bool with_trial,
                Environment* env) {
  for (const bool with_job :
       {!spec.environment_options.tf_config_job.empty(), false}) {
    std::string text = ClusterText(spec, self, first, with_trial, with_job);
    if (name.size() + 1 + text.size() >= kMaxVariable) continue;
    (*env)[name] = std::move(text);
    return;
  }
}

// The variables of torch.distributed's env://, as torchrun sets them.
void PutTorch(const ClusterSpec& spec, const Place& place, Environment* env) {
  Environment& e = *env;
  const std::string rank = std::to_string(place.rank->rank);
  const std::string size = std::to_string(spec.world_size);
  e["RANK"] = e["ROLE_RANK"] = rank;
  e["WORLD_SIZE"] = e["ROLE_WORLD_SIZE"] = size;
  e["ROLE_NAME"] = "default";
  e["LOCAL_RANK"] = std::to_string(place.rank->local_rank);
  e["LOCAL_WORLD_SIZE"] = std::to_string(place.task->ranks.size());
  e["GROUP_RANK"] = std::to_string(place.group_rank);
  e["GROUP_WORLD_SIZE"] = std::to_string(place.group_size);
  e["MASTER_ADDR"] = spec.master_address;
  e["MASTER_PORT"] = std::to_string(spec.master_port);
  e["TORCHELASTIC_RUN_ID"] = spec.job;
  // For a program that is torchrun itself: each rank is one of its nodes. With
  // its static rendezvous, the agent of node 0 opens the store on the master's
  // port and its workers only connect to it, so one port serves both.
  e["PET_NNODES"] = size;
  e["PET_NODE_RANK"] = rank;
  e["PET_NPROC_PER_NODE"] =
      std::to_string(std::max<size_t>(1, place.rank->gpus.size()));
  e["PET_MASTER_ADDR"] = e["MASTER_ADDR"];
  e["PET_MASTER_PORT"] = e["MASTER_PORT"];
}

void PutXgboost(const ClusterSpec& spec, const Place& place, Environment* env) {
  (*env)["DMLC_TRACKER_URI"] = spec.master_address;
  (*env)["DMLC_TRACKER_PORT"] = std::to_string(spec.master_port);
  (*env)["DMLC_TASK_ID"] = std::to_string(place.rank->rank);
  (*env)["DMLC_NUM_WORKER"] = std::to_string(spec.world_size);
}

// The variables that jax.distributed.initialize reads or its callers pass.
// Names without prefix are those of Kubeflow's JAXJob.
//
// JAX reads the address itself, but the number and index of processes only from
// known launchers (jax/_src/clusters). Of those, Open MPI's names have the
// fewest side effects; Lightning and others look for Slurm's. The URI is empty:
// JAX only checks that it exists, and Open MPI treats an empty parameter as
// absent, so a program that calls MPI_Init does not act as mpirun's child.
void PutJax(const ClusterSpec& spec, const Place& place, Environment* env) {
  // The rank's own GPUs among those that the task sees.
  std::string devices;
  int32_t seen = 0;
  for (const RankSpec& rank : place.task->ranks) {
    for (size_t i = 0; i < rank.gpus.size(); ++i, ++seen) {
      if (&rank != place.rank) continue;
      if (!devices.empty()) devices += ',';
      devices += std::to_string(seen);
    }
  }
  Environment& e = *env;
  if (!devices.empty()) e["JAX_LOCAL_DEVICE_IDS"] = devices;
  const auto service = spec.services.find(std::string(kJaxService));
  if (service == spec.services.end()) return;
  const auto address = ParseHostPort(service->second);
  if (!address.ok()) return;
  e["JAX_COORDINATOR_ADDRESS"] = service->second;
  e["JAX_COORDINATOR_PORT"] = std::to_string(address->port);
  e["JAX_NUM_PROCESSES"] = std::to_string(spec.world_size);
  e["JAX_PROCESS_ID"] = std::to_string(place.rank->rank);
  e["OMPI_MCA_orte_hnp_uri"] = "";
  e["OMPI_COMM_WORLD_SIZE"] = e["JAX_NUM_PROCESSES"];
  e["OMPI_COMM_WORLD_RANK"] = e["JAX_PROCESS_ID"];
  e["OMPI_COMM_WORLD_LOCAL_RANK"] = std::to_string(place.rank->local_rank);
  e["COORDINATOR_ADDRESS"] = address->host;
  e["COORDINATOR_PORT"] = e["JAX_COORDINATOR_PORT"];
  e["NUM_PROCESSES"] = e["JAX_NUM_PROCESSES"];
  e["PROCESS_ID"] = e["JAX_PROCESS_ID"];
}

// Returns the hosts of the group's tasks as a Slurm list. Readers connect to
// the first entry, so entries are addresses. Brackets in a list denote ranges
// of numbers, so an IPv6 host is given by its node's name.
std::string SlurmNodes(const ClusterSpec& spec) {
  std::string all;
  std::string first;
  for (const TaskSpec& task : spec.tasks) {
    if (!IsInGroup(task.type)) continue;
    const auto address = ParseHostPort(task.address);
    const std::string host =
        address.ok() && address->host.find(':') == std::string::npos
            ? address->host
            : task.node;
    if (first.empty()) first = host;
    if (!all.empty()) all += ',';
    all += host;
  }
  // No reader needs a longer list.
  constexpr size_t kLongestName = sizeof("SLURM_STEP_NODELIST=");
  return all.size() + kLongestName < kMaxVariable ? all : first;
}

// Each task counts as a node, so that LOCALID matches the visible GPUs.
void PutSlurm(const ClusterSpec& spec, const Place& place, Environment* env) {
  Environment& e = *env;
  // Any number that the whole job shares.
  e["SLURM_JOB_ID"] = e["SLURM_JOBID"] =
      std::to_string(1 + (Crc32c(spec.job_uid) & 0x3fffffff));
  e["SLURM_PROCID"] = std::to_string(place.rank->rank);
  e["SLURM_NTASKS"] = std::to_string(spec.world_size);
  e["SLURM_LOCALID"] = std::to_string(place.rank->local_rank);
  e["SLURM_NODEID"] = std::to_string(place.group_rank);
  e["SLURM_NNODES"] = e["SLURM_STEP_NUM_NODES"] =
      std::to_string(place.group_size);
  e["SLURM_STEP_NODELIST"] = e["SLURM_JOB_NODELIST"] = e["SLURM_NODELIST"] =
      SlurmNodes(spec);
  const size_t ranks = place.task->ranks.size();
  if (ranks * static_cast<size_t>(place.group_size) ==
      static_cast<size_t>(spec.world_size)) {
    e["SLURM_NTASKS_PER_NODE"] = std::to_string(ranks);
  }
  size_t gpus = 0;
  for (const RankSpec& rank : place.task->ranks) gpus += rank.gpus.size();
  if (gpus > 0) e["SLURM_GPUS_ON_NODE"] = std::to_string(gpus);
}

}  // namespace

std::map<std::string, std::string> RankEnvironment(const ClusterSpec& spec,
                                                   int32_t rank) {
  Environment env;
  const Place place = FindPlace(spec, rank);
  if (place.task == nullptr) return env;
  PutCluster("TF_CONFIG", spec, *place.task,
             spec.environment_options.master_in_tf_config ? FirstTask::kMaster
                                                          : FirstTask::kChief,
             /*with_trial=*/false, &env);
  PutCluster("CLUSTER_SPEC", spec, *place.task, FirstTask::kMaster,
             /*with_trial=*/true, &env);
  env["CLOUD_ML_JOB_ID"] = spec.job;
  if (!IsInGroup(place.task->type)) return env;
  PutTorch(spec, place, &env);
  PutXgboost(spec, place, &env);
  PutJax(spec, place, &env);
  if (spec.environment_options.slurm_environment) PutSlurm(spec, place, &env);
  if (spec.full_size > 0) {
    env["LOCKSTEP_FULL_SIZE"] = std::to_string(spec.full_size);
  }
  return env;
}

}  // namespace lockstep
