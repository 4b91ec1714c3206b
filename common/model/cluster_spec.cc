#include "common/model/cluster_spec.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

bool Reduces(TaskType type) {
  return type == TaskType::kChief || type == TaskType::kWorker;
}

const TaskSpec* FindTask(const ClusterSpec& spec, int32_t rank,
                         const RankSpec** found) {
  for (const TaskSpec& task : spec.tasks) {
    for (const RankSpec& r : task.ranks) {
      if (r.rank == rank) {
        *found = &r;
        return &task;
      }
    }
  }
  return nullptr;
}

// As TensorFlow's TFConfigClusterResolver reads it; an evaluator is never in
// the cluster.
std::string TfConfig(const ClusterSpec& spec, const TaskSpec& task) {
  nlohmann::ordered_json cluster = nlohmann::ordered_json::object();
  for (const TaskSpec& t : spec.tasks) {
    if (t.type == TaskType::kEvaluator) continue;
    cluster[std::string(Name(t.type))].push_back(t.address);
  }
  nlohmann::ordered_json config;
  config["cluster"] = std::move(cluster);
  config["task"] = {{"type", std::string(Name(task.type))},
                    {"index", task.index}};
  config["environment"] = "cloud";
  return config.dump();
}

}  // namespace

std::string CanonicalText(const ClusterSpec& spec) {
  std::string text = fmt::format(
      "job={}\nuid={}\ngeneration={}\nworld_size={}\nmaster={}:{}\n", spec.job,
      spec.job_uid, spec.generation, spec.world_size, spec.master_address,
      spec.master_port);
  for (const TaskSpec& task : spec.tasks) {
    text += fmt::format("task={}/{} node={} address={}", Name(task.type),
                        task.index, task.node, task.address);
    for (const RankSpec& rank : task.ranks) {
      text += fmt::format(" rank={}/{}", rank.rank, rank.local_rank);
      for (const int32_t gpu : rank.gpus) text += fmt::format(":{}", gpu);
    }
    text += '\n';
  }
  for (const auto& [name, address] : spec.services) {
    text += fmt::format("service={} {}\n", name, address);
  }
  return text;
}

std::map<std::string, std::string> RankEnvironment(const ClusterSpec& spec,
                                                   int32_t rank) {
  const RankSpec* self = nullptr;
  const TaskSpec* task = FindTask(spec, rank, &self);
  std::map<std::string, std::string> env;
  if (task == nullptr) return env;
  env["TF_CONFIG"] = TfConfig(spec, *task);
  if (Reduces(task->type)) {
    env["RANK"] = std::to_string(rank);
    env["WORLD_SIZE"] = std::to_string(spec.world_size);
    env["LOCAL_RANK"] = std::to_string(self->local_rank);
    env["LOCAL_WORLD_SIZE"] = std::to_string(task->ranks.size());
    env["MASTER_ADDR"] = spec.master_address;
    env["MASTER_PORT"] = std::to_string(spec.master_port);
  }
  return env;
}

}  // namespace lockstep
