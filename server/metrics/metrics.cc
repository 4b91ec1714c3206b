#include "server/metrics/metrics.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <string>
#include <utility>

#include "server/core/placement_text.h"
#include "server/metrics/discovery.h"
#include "server/metrics/job_metrics.h"
#include "server/metrics/metric_families.h"
#include "server/metrics/metric_names.h"

namespace lockstep::server {
namespace {

// The GPUs of a typical host, or all of a smaller one.
constexpr int32_t kGang = 8;

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
    // On nodes that take work.
    int32_t free_gpus = 0;
    int32_t lone_gpus = 0;
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
    if (!node.member.TakesWork()) continue;
    const auto gpus = static_cast<int32_t>(info.gpus.size());
    const int32_t free = std::max(0, gpus - node.allocated.gpus);
    pool.free_gpus += free;
    if (gpus > 0) pool.lone_gpus += free % std::min(gpus, kGang);
  }
  for (auto& [name, pool] : pools) {
    for (const NodeState state : kAllNodeStates) {
      out->Gauge("lockstep_nodes", "Nodes by state.",
                 static_cast<double>(pool.nodes[state]),
                 {{"pool", name}, {"state", LowerName(Name(state))}});
    }
    AddResources("lockstep_resources_capacity", "Resources of all nodes.", name,
                 pool.capacity, out);
    AddResources("lockstep_resources_allocated", "Resources allocated to jobs.",
                 name, pool.allocated, out);
    if (pool.capacity.gpus == 0) continue;
    out->Gauge(
        "lockstep_scheduler_fragmentation_ratio",
        "Share of the free GPUs that are scattered, so that no gang of 8 "
        "fits on one host.",
        pool.free_gpus == 0 ? 0
                            : static_cast<double>(pool.lone_gpus) /
                                  static_cast<double>(pool.free_gpus),
        {{"pool", name}});
  }
}

void AddGpuStates(const Member& member, const MetricLabels& id,
                  MetricFamilies* out) {
  size_t withheld = 0;
  for (const Gpu& gpu : member.info.gpus) {
    if (!gpu.fault.empty()) ++withheld;
  }
  out->Gauge("lockstep_node_gpus_withheld",
             "GPUs of the node that a verdict on their errors and readings "
             "keeps from new work.",
             static_cast<double>(withheld), id);
  if (!member.info.gpus.empty()) {
    out->Gauge("lockstep_node_gpus_checking",
               "GPUs of the node that are being checked, and get no work.",
               static_cast<double>(member.checking.open.size()), id);
    const auto count = [&](const char* result, uint64_t checks) {
      out->Counter("lockstep_node_gpu_checks_total",
                   "Checks of GPUs of the node since the coordinator started, "
                   "by result.",
                   static_cast<double>(checks),
                   {{"node", member.info.name}, {"result", result}});
    };
    count("passed", member.checking.passed);
    count("failed", member.checking.failed);
  }
  out->Gauge("lockstep_node_gpus_reclaim",
             "GPUs of the node whose rank has ended, and whose memory or "
             "processes have not.",
             static_cast<double>(member.readings.reclaims.size()), id);
  out->Gauge("lockstep_node_stuck_processes",
             "Processes of ended ranks that SIGKILL does not end.",
             static_cast<double>(member.readings.stuck_processes.size()), id);
}

void AddNode(const NodeSnapshot& node, const Prices& prices,
             MetricFamilies* out) {
  const Member& member = node.member;
  const MetricLabels id = {{"node", member.info.name}};
  out->Gauge("lockstep_node_info", "Always 1; the labels describe the node.", 1,
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
               "Time of the node's last heartbeat.",
               UnixSeconds(member.last_beat_wall), id);
  }
  out->Gauge("lockstep_node_clock_offset_seconds",
             "How far the node's clock is behind the coordinator's.",
             ToSeconds(member.clock.offset()), id);
  out->Gauge("lockstep_node_jobs", "Jobs that hold resources of the node.",
             static_cast<double>(node.jobs.size()), id);
  out->Gauge("lockstep_node_cooled_down",
             "1 while the node gets no new work because it failed jobs.",
             node.cool_down_end ? 1 : 0, id);
  out->Gauge(
      "lockstep_node_apart_nodes",
      "Nodes with which it shares no gang, because they did not reach each "
      "other.",
      static_cast<double>(node.apart_from.size()), id);
  out->Gauge("lockstep_node_gpus_missing",
             "GPUs that the node no longer offers, or that do "
             "not answer.",
             static_cast<double>(member.LostGpus()), id);
  AddGpuStates(member, id, out);
  if (member.info.certificate_end_time) {
    out->Gauge("lockstep_node_certificate_expiry_timestamp_seconds",
               "Expiry of the certificate of the node's daemon.",
               UnixSeconds(*member.info.certificate_end_time), id);
  }
  out->Gauge("lockstep_node_price_per_hour",
             "Cost of the whole node at the site's prices.",
             NodePrice(member.info, prices),
             {{"node", member.info.name},
              {"pool", member.info.pool},
              {"currency", prices.currency}});
}

// The largest share of a resource that jobs of this queue, the only one, hold
// among all held resources.
void AddShares(const CoordinatorView& view, MetricFamilies* out) {
  Resources queue, all;
  for (const auto& entry : view.jobs) {
    for (const Hold& hold : entry.snapshot.job->holds) {
      queue.cpus += hold.resources.cpus;
      queue.gpus += static_cast<int32_t>(hold.gpus.size());
    }
  }
  for (const NodeSnapshot& node : view.nodes) {
    all.cpus += node.allocated.cpus;
    all.gpus += node.allocated.gpus;
  }
  double share = 0;
  if (all.cpus > 0) share = std::max(share, queue.cpus / all.cpus);
  if (all.gpus > 0) {
    share = std::max(
        share, static_cast<double>(queue.gpus) / static_cast<double>(all.gpus));
  }
  out->Gauge("lockstep_queue_share_target_ratio",
             "Share of allocated resources that the queue's jobs should have.",
             1, {{"queue", kQueue}});
  out->Gauge("lockstep_queue_share_actual_ratio",
             "Share of allocated resources that the queue's jobs have; 0 if no "
             "job has "
             "anything.",
             std::min(share, 1.0), {{"queue", kQueue}});
}

// The sum over nodes that take work.
Resources FreeInAll(const CoordinatorView& view) {
  Resources free;
  for (const NodeSnapshot& node : view.nodes) {
    const Member& member = node.member;
    if (!member.TakesWork()) continue;
    free.cpus += std::max(0.0, member.info.capacity.cpus - node.allocated.cpus);
    free.memory_bytes += std::max<int64_t>(
        0, member.info.capacity.memory_bytes - node.allocated.memory_bytes);
    free.gpus += std::max(
        0, static_cast<int32_t>(member.info.gpus.size()) - node.allocated.gpus);
  }
  return free;
}

bool Fits(const JobSpec& spec, const Resources& free) {
  const Resources asked = SumOf(spec);
  return asked.cpus <= free.cpus + 1e-6 &&
         asked.memory_bytes <= free.memory_bytes && asked.gpus <= free.gpus;
}

// Returns the reason for which the job is held, or kNone.
Reason HeldBy(const Job& job) {
  if (IsFinal(job.state)) return Reason::kNone;
  if (job.output_hold) return job.output_hold->reason;
  return job.cause.reason == Reason::kOutputFull ? Reason::kOutputFull
                                                 : Reason::kNone;
}

void AddHeld(const CoordinatorView& view, MetricFamilies* out) {
  std::map<Reason, int64_t> held = {{Reason::kOutputMissing, 0},
                                    {Reason::kNoCheckpoint, 0},
                                    {Reason::kOutputFull, 0},
                                    {Reason::kCannotForm, 0}};
  for (const auto& entry : view.jobs) {
    const auto count = held.find(HeldBy(*entry.snapshot.job));
    if (count != held.end()) ++count->second;
  }
  for (const auto& [reason, count] : held) {
    out->Gauge("lockstep_jobs_held",
               "Jobs that wait for their output directory, or for nodes that "
               "reach each other, by cause.",
               static_cast<double>(count),
               {{"reason", LowerName(Name(reason))}});
  }
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
  double oldest = 0, fitting = 0;
  const Resources free = FreeInAll(view);
  for (const auto& entry : view.jobs) {
    const Job& job = *entry.snapshot.job;
    if (job.state != JobState::kQueued && job.state != JobState::kPlacing) {
      continue;
    }
    const double waited = ToSeconds(view.time.wall - job.state_time);
    oldest = std::max(oldest, waited);
    if (Fits(job.spec, free)) fitting = std::max(fitting, waited);
  }
  const char help[] = "Queued jobs and placed jobs.";
  out->Gauge("lockstep_queue_jobs", help, static_cast<double>(pending),
             {{"queue", kQueue}, {"state", "pending"}});
  out->Gauge("lockstep_queue_jobs", help, static_cast<double>(running),
             {{"queue", kQueue}, {"state", "running"}});
  out->Gauge("lockstep_queue_oldest_pending_seconds",
             "Waiting time of the longest waiting job.", oldest,
             {{"queue", kQueue}});
  out->Gauge("lockstep_queue_oldest_fitting_seconds",
             "The same for jobs whose request is free in total.", fitting,
             {{"queue", kQueue}});
}

void AddDaemon(const DaemonFacts& facts, MetricFamilies* out) {
  if (facts.certificate_end) {
    out->Gauge("lockstep_certificate_expiry_timestamp_seconds",
               "Expiry of this daemon's certificate, since unix epoch.",
               UnixSeconds(*facts.certificate_end));
  }
  if (facts.ballast != nullptr) {
    out->Gauge(
        "lockstep_state_disk_ballast_bytes",
        "Ballast on that file system for when it is full; 0 if it was given "
        "up and new jobs are rejected.",
        static_cast<double>(facts.ballast->held_bytes()));
  }
  struct statvfs use {};
  if (facts.dir.empty() || ::statvfs(facts.dir.c_str(), &use) != 0) return;
  const auto bytes = [&](fsblkcnt_t blocks) {
    return static_cast<double>(blocks) * static_cast<double>(use.f_frsize);
  };
  out->Gauge("lockstep_state_disk_size_bytes",
             "Size of the file system that holds the coordinator's directory.",
             bytes(use.f_blocks));
  out->Gauge("lockstep_state_disk_available_bytes",
             "Free space for users other than root on that file system.",
             bytes(use.f_bavail));
}

}  // namespace

std::vector<prometheus::MetricFamily> CoordinatorMetrics::Collect() const {
  const CoordinatorView view = queries_->View(kSeriesLinger);
  ledger_->Look(view);
  MetricFamilies out;
  out.Gauge("lockstep_leader", "1 on the active coordinator.", 1);
  out.Gauge("lockstep_store_writable",
            "0 while commits fail and commands are rejected.",
            view.store_healthy ? 1 : 0);
  AddDaemon(facts_, &out);
  AddPools(view, &out);
  out.Gauge("lockstep_nodes_without_metrics",
            "Nodes that /sd leaves out: their HTTP port is on loopback, or "
            "they have none.",
            static_cast<double>(std::count_if(
                view.nodes.begin(), view.nodes.end(), [](const auto& node) {
                  return !UnreachableHttp(node.member.info).empty();
                })));
  out.Gauge("lockstep_nodes_awaiting_approval",
            "Nodes that offer more than was approved; only the approved "
            "part is used.",
            static_cast<double>(std::count_if(
                view.nodes.begin(), view.nodes.end(), [](const auto& node) {
                  return node.member.offered.has_value();
                })));
  out.Gauge("lockstep_nodes_awaiting_operator",
            "Silent nodes with a program that waits until the node is back or "
            "an operator forgets it.",
            static_cast<double>(std::count_if(
                view.nodes.begin(), view.nodes.end(),
                [](const auto& node) { return node.needs_operator; })));
  out.Gauge("lockstep_nodes_of_later_epoch",
            "Nodes that have obeyed a later coordinator than this one and "
            "refuse it.",
            static_cast<double>(view.refused_by.size()));
  AddQueue(view, &out);
  AddHeld(view, &out);
  AddShares(view, &out);
  for (const NodeSnapshot& node : view.nodes) AddNode(node, view.prices, &out);
  const std::shared_ptr<const Site> site = site_ ? site_->Get() : nullptr;
  const MachineTable unknown;
  for (const auto& entry : view.jobs) {
    AddJobMetrics(entry.snapshot, view, site ? site->machines : unknown, &out);
  }
  ledger_->Collect(view, &out);
  return out.Take();
}

}  // namespace lockstep::server
