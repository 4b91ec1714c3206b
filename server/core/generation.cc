#include "server/core/generation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/model/removed_backend.h"
#include "server/core/images.h"
#include "server/core/job_places.h"
#include "server/core/job_roles.h"
#include "server/core/lineage.h"
#include "server/core/preparing.h"
#include "server/core/reports.h"
#include "server/core/transitions.h"
#include "server/core/work_files.h"

namespace lockstep::server {
namespace {

constexpr size_t kMaxAttempts = 20;

// A job stored by an older version may ask for gloo. Its reduction plan has
// gloo's order, so it is dropped, too.
void ReplaceBackend(Job* job, Time now) {
  if (!ReplaceGloo(&job->spec)) return;
  job->reduction_plan.clear();
  AddEvent(job, Reason::kBackendReplaced,
           fmt::format("backend gloo is no longer available: generation {} "
                       "uses backend auto and makes a new reduction plan",
                       job->generation),
           now);
}

// Of chief and workers.
int32_t RanksOfGroup(const JobSpec& spec) {
  int32_t ranks = 0;
  for (const RoleSpec& role : spec.roles) {
    if (IsOfGroup(role.type)) ranks += role.count * role.ranks_per_task;
  }
  return ranks;
}

}  // namespace

Hold HoldOn(const Job& job, const std::vector<size_t>& tasks,
            const NodeName& node, Time now) {
  Hold hold;
  hold.node = node;
  hold.generation = job.generation;
  hold.since = now.wall;
  for (const size_t index : tasks) {
    const TaskStatus& task = job.tasks[index];
    for (const RoleSpec& role : job.spec.roles) {
      if (role.type != task.type) continue;
      hold.resources.cpus += role.resources.cpus;
      hold.resources.memory_bytes += role.resources.memory_bytes;
      hold.resources.gpus += role.resources.gpus;
    }
    hold.gpus.insert(hold.gpus.end(), task.gpus.begin(), task.gpus.end());
  }
  return hold;
}

std::vector<int32_t> GpusOfRank(const TaskStatus& task, int32_t local_rank) {
  const size_t each = task.gpus.size() / task.ranks.size();
  const auto first =
      task.gpus.begin() +
      static_cast<ptrdiff_t>(static_cast<size_t>(local_rank) * each);
  return {first, first + static_cast<ptrdiff_t>(each)};
}

void StartGeneration(Job* job, Time now) {
  job->generation = std::max(job->generation, job->generation_floor) + 1;
  AddGeneration(job);
  ReplaceBackend(job, now);
  ++job->attempt;
  job->cluster.reset();
  job->job_key.clear();
  // Nothing was written before the first RUNNING, so the directory on rank 0's
  // new node counts. From then on the directory is known.
  if (!job->start_time) job->output_identity.clear();
  job->attempt_start = now.wall;
  job->failing.reset();
  job->not_before.reset();
  job->committed_before = job->committed_step.value_or(0);
  job->event_numbers.clear();
  job->lone_ranks.clear();
  job->replacements.clear();
  job->recovery = 0;
  job->recovery_start = {};
  job->resize.reset();
  DropNewNodes(job);
  // The stop was carried out. Ids count from 1 in each generation.
  std::erase_if(job->directives, [](const Directive& directive) {
    return directive.kind == DirectiveKind::kStop;
  });
  job->next_directive = 1;
  for (Directive& directive : job->directives) {
    directive.id = job->next_directive++;
  }
  for (TaskStatus& task : job->tasks) {
    task.address.clear();
    task.preparation = {};
    task.work.reset();
    task.former_nodes.clear();
    for (RankStatus& rank : task.ranks) {
      RankStatus fresh;
      fresh.rank = rank.rank;
      fresh.local_rank = rank.local_rank;
      rank = fresh;
    }
  }
  const JobPlaces places(*job);
  for (const NodeName& node : NodesOf(*job)) {
    job->holds.push_back(HoldOn(*job, places.TasksOn(node), node, now));
  }
  EnterState(job, JobState::kPreparing,
             {Reason::kPreparingNodes,
              fmt::format("generation {} on {}", job->generation,
                          fmt::join(NodesOf(*job), ", "))},
             now);
}

std::vector<std::string> ServicesOf(const JobSpec& spec) {
  if (spec.kind != JobKind::kProgram) return {};
  return {std::string(kJaxService)};
}

bool AllPrepared(const Job& job, const JobView& view,
                 std::vector<NodeName>* missing) {
  const JobPlaces places(job);
  for (const NodeName& node : NodesOf(job)) {
    const GangStatus* gang = GangOf(view, node, job.generation);
    if (gang == nullptr || gang->phase != GangPhase::kPrepared ||
        gang->ports.size() != places.TasksOn(node).size() ||
        !HasSettledImages(job, *gang) || !SeesOutput(job, *gang)) {
      missing->push_back(node);
    }
  }
  return missing->empty();
}

void SetMaster(const GangStatus& gang, const std::string& address,
               const JobSpec& job, ClusterSpec* spec) {
  spec->master_address = address;
  spec->master_port = gang.master_port;
  for (const std::string& service : ServicesOf(job)) {
    // A daemon from before services leases none.
    const auto port = gang.service_ports.find(service);
    if (port == gang.service_ports.end()) continue;
    spec->services[service] = fmt::format("{}:{}", address, port->second);
  }
}

void MakeClusterSpec(Job* job, const JobView& view) {
  ClusterSpec spec;
  spec.job = job->spec.name;
  spec.job_uid = job->uid;
  spec.generation = job->generation;
  spec.environment_options = job->spec.environment_options;
  std::map<NodeName, size_t> used;
  for (TaskStatus& task : job->tasks) {
    const GangStatus* gang = GangOf(view, task.node, job->generation);
    task.address = fmt::format("{}:{}", view.nodes.at(task.node).address,
                               gang->ports[used[task.node]++]);
    TaskSpec entry{task.type, task.index, task.node, task.address, {}};
    for (const RankStatus& rank : task.ranks) {
      RankSpec r;
      r.rank = rank.rank;
      r.local_rank = rank.local_rank;
      r.gpus = GpusOfRank(task, rank.local_rank);
      entry.ranks.push_back(std::move(r));
    }
    if (IsOfGroup(task.type)) {
      spec.world_size += static_cast<int32_t>(task.ranks.size());
    }
    spec.tasks.push_back(std::move(entry));
  }
  if (job->spec.rescale) spec.full_size = RanksOfGroup(job->spec);
  const NodeName& first = job->tasks.front().node;
  SetMaster(*GangOf(view, first, job->generation), view.nodes.at(first).address,
            job->spec, &spec);
  job->cluster = std::move(spec);
  job->job_key = view.fresh_key;
}

void CloseAttempt(Job* job, const JobView& view, const Cause& cause, Time now) {
  if (job->attempt > 0 &&
      (job->attempts.empty() ||
       job->attempts.back().generation != job->generation)) {
    Attempt attempt;
    attempt.ordinal = job->attempt;
    attempt.generation = job->generation;
    attempt.start_time = job->attempt_start;
    attempt.end_time = now.wall;
    attempt.end_cause = cause;
    attempt.tasks = job->tasks;
    ShortenWork(&attempt.tasks);
    if (!job->lineage.empty() && job->lineage.back().start_step > 0) {
      attempt.resumed_step = job->lineage.back().start_step;
    }
    job->attempts.push_back(std::move(attempt));
    if (job->attempts.size() > kMaxAttempts) {
      job->attempts.erase(job->attempts.begin());
    }
  }
  const int64_t highest = HighestCommitted(*job, view);
  if (highest > job->committed_step.value_or(0)) job->committed_step = highest;
}

}  // namespace lockstep::server
