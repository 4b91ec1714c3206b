#include "common/model/cluster_spec.h"

#include <fmt/format.h>

namespace lockstep {

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
  // Other jobs keep the text that older versions have for them.
  if (spec.full_size > 0) text += fmt::format("full_size={}\n", spec.full_size);
  return text;
}

}  // namespace lockstep
