#include "server/service/metrics.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/service/metric_families.h"
#include "server/service/metric_names.h"

namespace lockstep {
namespace {

double UnixSeconds(WallTime time) {
  return static_cast<double>(ToUnixNanos(time)) / 1e9;
}

double NodePrice(const NodeInfo& info, const Prices& prices) {
  double price = info.capacity.cpus * prices.core_hour;
  for (const Gpu& gpu : info.gpus) {
    double gpu_hour = prices.gpu_hour;
    for (const auto& [model, named] : prices.gpu_hours) {
      if (GpuModelMatches(model, gpu.model)) gpu_hour = named;
    }
    price += gpu_hour;
  }
  return price;
}

void AddResources(const std::string& name, const std::string& help,
                  const std::string& pool, const Resources& r,
                  MetricFamilies* out) {
  const auto add = [&](const char* resource, double amount) {
    out->Gauge(name, help, amount, {{"pool", pool}, {"resource", resource}});
  };
  add("cpu", r.cpus);
  add("memory_bytes", static_cast<double>(r.memory_bytes));
  add("gpu", r.gpus);
}

void AddPools(const CoordinatorView& view, MetricFamilies* out) {
  struct Pool {
    std::map<NodeState, int64_t> nodes;
    Resources capacity;
    Resources allocated;
  };
  std::map<std::string, Pool> pools;
  if (view.nodes.empty()) pools["default"];
  for (const NodeSnapshot& node : view.nodes) {
    const NodeInfo& info = node.member.info;
    Pool& pool = pools[info.pool];
    ++pool.nodes[node.member.state];
    pool.capacity.cpus += info.capacity.cpus;
    pool.capacity.memory_bytes += info.capacity.memory_bytes;
    pool.capacity.gpus += static_cast<int32_t>(info.gpus.size());
    pool.allocated.cpus += node.allocated.cpus;
    pool.allocated.memory_bytes += node.allocated.memory_bytes;
    pool.allocated.gpus += node.allocated.gpus;
  }
  for (auto& [name, pool] : pools) {
    for (const NodeState state : kAllNodeStates) {
      out->Gauge("lockstep_nodes", "Nodes by state.",
                 static_cast<double>(pool.nodes[state]),
                 {{"pool", name}, {"state", LowerName(Name(state))}});
    }
    AddResources("lockstep_resources_capacity", "What all nodes have.", name,
                 pool.capacity, out);
    AddResources("lockstep_resources_allocated", "What jobs hold of it.", name,
                 pool.allocated, out);
  }
}

void AddNode(const NodeSnapshot& node, const Prices& prices,
             MetricFamilies* out) {
  const Member& member = node.member;
  const MetricLabels id = {{"node", member.info.name}};
  out->Gauge("lockstep_node_info", "Always 1; the labels say what it is.", 1,
             {{"node", member.info.name},
              {"pool", member.info.pool},
              {"version", member.info.version}});
  for (const NodeState state : kAllNodeStates) {
    out->Gauge("lockstep_node_state", "1 for the state that the node is in.",
               member.state == state ? 1 : 0,
               {{"node", member.info.name}, {"state", LowerName(Name(state))}});
  }
  if (member.last_beat_wall != WallTime{}) {
    out->Gauge("lockstep_node_last_heartbeat_timestamp_seconds",
               "When the node was last heard of.",
               UnixSeconds(member.last_beat_wall), id);
  }
  out->Gauge("lockstep_node_jobs", "Jobs that hold resources of the node.",
             static_cast<double>(node.jobs.size()), id);
  out->Gauge("lockstep_node_price_per_hour",
             "What all of the node costs, at the site's prices.",
             NodePrice(member.info, prices),
             {{"node", member.info.name},
              {"pool", member.info.pool},
              {"currency", prices.currency}});
}

int32_t WorldSize(const Job& job) {
  int32_t ranks = 0;
  for (const RoleSpec& role : job.spec.roles) {
    if (role.type == TaskType::kChief || role.type == TaskType::kWorker) {
      ranks += role.count * role.ranks_per_task;
    }
  }
  return ranks;
}

// Of what a native job's chief says now.
void AddProgress(const JobSnapshot& snapshot, const MetricLabels& id,
                 MetricFamilies* out) {
  if (!snapshot.progress || snapshot.job->spec.kind != JobKind::kNative) return;
  const RankProgress& chief = snapshot.progress->chief;
  if (chief.committed_step < 0) return;
  out->Gauge("lockstep_job_step", "Newest step that the chief committed.",
             static_cast<double>(chief.committed_step), id);
  out->Gauge("lockstep_job_epoch", "Epochs done, with the fraction.",
             chief.epoch, id);
  out->Gauge("lockstep_job_loss", "Loss that the chief reported last.",
             chief.loss, id);
  out->Gauge("lockstep_job_samples_per_second",
             "Samples of all ranks, over the last 10 s.",
             snapshot.progress->samples_per_second, id);
  if (chief.total_steps > 0) {
    out->Gauge("lockstep_job_progress_ratio", "Part of all steps that is done.",
               std::clamp(static_cast<double>(chief.committed_step) /
                              static_cast<double>(chief.total_steps),
                          0.0, 1.0),
               id);
  }
  if (snapshot.progress->eta) {
    out->Gauge("lockstep_job_eta_seconds", "Time left at the present rate.",
               ToSeconds(*snapshot.progress->eta), id);
  }
}

void AddJob(const JobSnapshot& snapshot, MetricFamilies* out) {
  const Job& job = *snapshot.job;
  const MetricLabels id = {{"job_id", job.spec.name}};
  const auto with = [&](const char* label, std::string_view value) {
    MetricLabels labels = id;
    labels.push_back({label, std::string(value)});
    return labels;
  };
  out->Gauge("lockstep_job_info", "Always 1; the labels say what the job is.",
             1,
             {{"job_id", job.spec.name},
              {"name", job.spec.name},
              {"user", job.owner},
              {"queue", kQueue},
              {"kind", std::string(Name(job.spec.kind))},
              {"world_size", std::to_string(WorldSize(job))}});
  for (const JobState state : kAllJobStates) {
    out->Gauge("lockstep_job_state", "1 for the state that the job is in.",
               job.state == state ? 1 : 0,
               with("state", LowerName(Name(state))));
  }
  const auto restarts = RestartsOf(job);
  for (size_t i = 0; i < kRestartReasons; ++i) {
    out->Counter("lockstep_job_restarts_total",
                 "Attempts after the first, by why the one before ended.",
                 static_cast<double>(restarts[i]),
                 with("reason", Name(static_cast<RestartReason>(i))));
  }
  out->Counter("lockstep_job_cost_total",
               "Use so far at the site's prices, idle or not.",
               snapshot.bill.cost, with("currency", snapshot.bill.currency));
  if (job.last_checkpoint) {
    out->Gauge("lockstep_checkpoint_last_step",
               "Step of the newest complete checkpoint.",
               static_cast<double>(job.last_checkpoint->step), id);
    out->Gauge("lockstep_checkpoint_last_success_timestamp_seconds",
               "When the newest complete checkpoint was published.",
               UnixSeconds(job.last_checkpoint->time), id);
  }
  AddProgress(snapshot, id, out);
}

void AddQueue(const CoordinatorView& view, MetricFamilies* out) {
  int64_t pending = 0, running = 0;
  for (const auto& [state, count] : view.jobs_by_state) {
    out->Gauge("lockstep_jobs", "Jobs by state, ended ones included.",
               static_cast<double>(count), {{"state", LowerName(Name(state))}});
    if (state == JobState::kQueued || state == JobState::kPlacing) {
      pending += count;
    } else if (!IsFinal(state)) {
      running += count;
    }
  }
  double oldest = 0;
  for (const auto& entry : view.jobs) {
    const Job& job = *entry.snapshot.job;
    if (job.state != JobState::kQueued && job.state != JobState::kPlacing) {
      continue;
    }
    oldest = std::max(oldest, ToSeconds(view.time.wall - job.state_time));
  }
  const char help[] = "Jobs that wait for a place, and that have one.";
  out->Gauge("lockstep_queue_jobs", help, static_cast<double>(pending),
             {{"queue", kQueue}, {"state", "pending"}});
  out->Gauge("lockstep_queue_jobs", help, static_cast<double>(running),
             {{"queue", kQueue}, {"state", "running"}});
  out->Gauge("lockstep_queue_oldest_pending_seconds",
             "How long the job that waits longest has waited.", oldest,
             {{"queue", kQueue}});
}

}  // namespace

std::vector<prometheus::MetricFamily> CoordinatorMetrics::Collect() const {
  const CoordinatorView view = coordinator_->View(kSeriesLinger);
  ledger_->Look(view);
  MetricFamilies out;
  out.Gauge("lockstep_leader", "1 on the coordinator that decides.", 1);
  out.Gauge("lockstep_store_writable",
            "0 while commits fail: commands are refused.",
            view.store_healthy ? 1 : 0);
  AddPools(view, &out);
  AddQueue(view, &out);
  for (const NodeSnapshot& node : view.nodes) AddNode(node, prices_, &out);
  for (const auto& entry : view.jobs) AddJob(entry.snapshot, &out);
  ledger_->Collect(view, &out);
  return out.Take();
}

}  // namespace lockstep
