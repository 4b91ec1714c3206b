#include "worker/agent/link/rank_welcome.h"

#include <iterator>
#include <set>
#include <vector>

#include "common/base/sha256.h"
#include "worker/agent/core/local_gang.h"

namespace lockstep::worker::agent {

namespace {

// In a container the task's GPUs have numbers from 0, in the host's order.
std::vector<int32_t> GpusSeenBy(const Assignment& assignment,
                                const LocalTask& task, int32_t rank) {
  std::vector<int32_t> own = GpusOfRank(assignment, rank);
  if (!task.container) return own;
  std::set<int32_t> all;
  for (const RankSpec& r : task.ranks) {
    for (const int32_t gpu : GpusOfRank(assignment, r.rank)) all.insert(gpu);
  }
  for (int32_t& gpu : own) {
    gpu = static_cast<int32_t>(std::distance(all.begin(), all.find(gpu)));
  }
  return own;
}

}  // namespace

v1::RankWelcome MakeWelcome(const Assignment& assignment, const LocalTask& task,
                            int32_t rank, const std::string& address,
                            const std::string& page) {
  v1::RankWelcome welcome;
  welcome.set_rank(rank);
  welcome.set_world_size(assignment.cluster->world_size);
  for (const RankSpec& r : task.ranks) {
    if (r.rank == rank) welcome.set_local_rank(r.local_rank);
  }
  welcome.set_local_size(static_cast<int32_t>(task.ranks.size()));
  welcome.set_generation(assignment.generation);
  welcome.set_job(assignment.job);
  welcome.set_job_key(assignment.job_key);
  welcome.set_spec_hash(Sha256(CanonicalText(*assignment.cluster)));
  welcome.set_bind_address(address);
  welcome.set_output_directory(assignment.spec->output_directory);
  welcome.set_checkpoint_interval_steps(
      assignment.spec->checkpoint.interval_steps);
  welcome.set_checkpoint_keep(assignment.spec->checkpoint.keep);
  // The newest ones: a packet holds 64 KiB.
  const auto& lineage = assignment.spec->lineage;
  for (size_t i = lineage.size() > 1000 ? lineage.size() - 1000 : 0;
       i < lineage.size(); ++i) {
    v1::RankLineage* entry = welcome.add_lineage();
    entry->set_generation(lineage[i].generation);
    entry->set_start_step(lineage[i].start_step);
  }
  if (const auto& known = assignment.spec->known_checkpoint) {
    welcome.set_known_checkpoint_generation(known->generation);
    welcome.set_known_checkpoint_step(known->step);
  }
  if (const auto& restore = assignment.spec->restore) {
    welcome.set_restore_step(restore->step.value_or(0));
    welcome.set_restore_from_start(restore->from_start());
  }
  welcome.set_page_path(page);
  for (const int32_t gpu : GpusSeenBy(assignment, task, rank)) {
    welcome.add_gpus(gpu);
  }
  welcome.set_cpus(CpusPerRank(task));
  welcome.set_attempt(assignment.spec->attempt);
  welcome.set_reduction_plan(assignment.spec->reduction_plan);
  welcome.set_reduction_plan_pinned(assignment.spec->reduction_plan_pinned);
  std::set<NodeName> hosts;
  for (const TaskSpec& t : assignment.cluster->tasks) hosts.insert(t.node);
  welcome.set_hosts(static_cast<int32_t>(hosts.size()));
  welcome.set_program(!IsNative(assignment));
  welcome.set_role(std::string(Name(task.type)));
  welcome.set_task_index(task.index);
  welcome.set_outside_group(task.type == TaskType::kPs ||
                            task.type == TaskType::kEvaluator);
  welcome.set_recovery(assignment.recovery);
  for (const int32_t away : assignment.away_ranks) {
    welcome.add_away_ranks(away);
  }
  return welcome;
}

}  // namespace lockstep::worker::agent
