#include "server/metrics/job_metrics.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "server/core/held_back.h"
#include "server/metrics/metric_names.h"

namespace lockstep::server {
namespace {

bool Trains(TaskType type) {
  return type == TaskType::kChief || type == TaskType::kWorker;
}

// Adds the named values that the chief reports.
void AddValues(const RankProgress& chief, const MetricLabels& id,
               MetricFamilies* out) {
  size_t shown = 0;
  for (const auto& [name, value] : chief.values) {
    if (shown++ == kMaxUserMetrics) break;
    MetricLabels labels = id;
    labels.push_back({"metric", name});
    out->Gauge("lockstep_job_user_metric",
               "Values that the chief reports by name.", value,
               std::move(labels));
  }
}

void AddMfu(const JobSnapshot& snapshot, const CoordinatorView& view,
            const MachineTable& machines, const MetricLabels& id,
            MetricFamilies* out) {
  const RankProgress& chief = snapshot.progress->chief;
  const auto each = chief.values.find(kFlopsPerSample);
  if (each == chief.values.end() || each->second <= 0) return;
  const auto peak = PeakFlopsOf(*snapshot.job, view, machines);
  if (!peak) return;
  out->Gauge("lockstep_job_mfu_ratio",
             "FLOP of its samples over the last 10 s, as a share of its GPUs' "
             "peak.",
             snapshot.progress->samples_per_second * each->second / *peak, id);
}

// Adds the current values of the chief, where it is native or has joined.
void AddProgress(const JobSnapshot& snapshot, const CoordinatorView& view,
                 const MachineTable& machines, const MetricLabels& id,
                 MetricFamilies* out) {
  if (!snapshot.progress) return;
  const RankProgress& chief = snapshot.progress->chief;
  AddValues(chief, id, out);
  if (chief.committed_step < 0) return;
  out->Gauge("lockstep_job_step", "Last step that the chief committed.",
             static_cast<double>(chief.committed_step), id);
  out->Gauge("lockstep_job_epoch", "Whole epochs that the chief completed.",
             chief.epoch, id);
  // A program need not report one.
  if (snapshot.job->spec.kind == JobKind::kNative || chief.loss != 0) {
    out->Gauge("lockstep_job_loss", "Last loss that the chief reported.",
               chief.loss, id);
  }
  out->Gauge("lockstep_job_samples_per_second",
             "Samples of all ranks over the last 10 s.",
             snapshot.progress->samples_per_second, id);
  if (chief.total_steps > 0) {
    out->Gauge("lockstep_job_progress_ratio",
               "Share of all steps that is done.",
               std::clamp(static_cast<double>(chief.committed_step) /
                              static_cast<double>(chief.total_steps),
                          0.0, 1.0),
               id);
  }
  if (snapshot.progress->eta) {
    out->Gauge("lockstep_job_eta_seconds",
               "Remaining time at the present rate.",
               ToSeconds(*snapshot.progress->eta), id);
  }
  AddMfu(snapshot, view, machines, id, out);
}

}  // namespace

int32_t TargetWorldSize(const Job& job) {
  int32_t left = WantedInPlace(job);
  int32_t ranks = 0;
  for (const RoleSpec& role : job.spec.roles) {
    if (!Trains(role.type)) continue;
    const int32_t tasks = std::min(left, role.count);
    ranks += tasks * role.ranks_per_task;
    left -= tasks;
  }
  return ranks;
}

int32_t ActualWorldSize(const JobSnapshot& snapshot) {
  int32_t ranks = 0;
  for (const TaskStatus& task : snapshot.job->tasks) {
    if (!Trains(task.type)) continue;
    for (const RankStatus& rank : task.ranks) {
      const auto live = snapshot.live.find(rank.rank);
      if (live == snapshot.live.end() || live->second.exit) continue;
      const RankState state = live->second.state;
      ranks += state == RankState::kStarted || state == RankState::kJoined;
    }
  }
  return ranks;
}

std::optional<double> PeakFlopsOf(const Job& job, const CoordinatorView& view,
                                  const MachineTable& machines) {
  std::optional<double> sum;
  for (const TaskStatus& task : job.tasks) {
    if (task.gpus.empty()) continue;
    const auto node = std::find_if(view.nodes.begin(), view.nodes.end(),
                                   [&](const NodeSnapshot& known) {
                                     return known.member.info.name == task.node;
                                   });
    if (node == view.nodes.end()) return std::nullopt;
    const std::vector<Gpu>& gpus = node->member.info.gpus;
    for (const int32_t index : task.gpus) {
      const auto gpu =
          std::find_if(gpus.begin(), gpus.end(),
                       [&](const Gpu& known) { return known.index == index; });
      if (gpu == gpus.end()) return std::nullopt;
      const auto peak = PeakFlops(machines, gpu->model);
      if (!peak) return std::nullopt;
      sum = sum.value_or(0) + *peak;
    }
  }
  return sum;
}

void AddJobMetrics(const JobSnapshot& snapshot, const CoordinatorView& view,
                   const MachineTable& machines, MetricFamilies* out) {
  const Job& job = *snapshot.job;
  const MetricLabels id = {{"job_id", job.spec.name}};
  const auto with = [&](const char* label, std::string_view value) {
    MetricLabels labels = id;
    labels.push_back({label, std::string(value)});
    return labels;
  };
  out->Gauge("lockstep_job_info", "Always 1; the labels describe the job.", 1,
             {{"job_id", job.spec.name},
              {"name", job.spec.name},
              {"user", job.owner},
              {"queue", kQueue},
              {"kind", std::string(Name(job.spec.kind))},
              {"world_size", std::to_string(TargetWorldSize(job))}});
  for (const JobState state : kAllJobStates) {
    out->Gauge("lockstep_job_state", "1 for the state that the job is in.",
               job.state == state ? 1 : 0,
               with("state", LowerName(Name(state))));
  }
  out->Gauge("lockstep_job_stalled",
             "1 while the job shows no progress for longer than its limit.",
             snapshot.stall && snapshot.stall->still > snapshot.stall->limit,
             id);
  const auto restarts = RestartsOf(job);
  for (size_t i = 0; i < kRestartReasons; ++i) {
    out->Counter(
        "lockstep_job_restarts_total",
        "Attempts after the first, by the cause that ended the one before.",
        static_cast<double>(restarts[i]),
        with("reason", Name(static_cast<RestartReason>(i))));
  }
  out->Counter("lockstep_job_recoveries_total",
               "How often ranks were replaced while the others stayed.",
               static_cast<double>(job.recoveries), id);
  out->Gauge("lockstep_job_away_ranks",
             "Ranks that are wanted, and that the others train without.",
             static_cast<double>(MissedRanks(job)), id);
  out->Counter("lockstep_job_cost_total",
               "Cost so far at the site's prices, idle time included.",
               snapshot.bill.cost, with("currency", snapshot.bill.currency));
  if (job.last_checkpoint) {
    out->Gauge("lockstep_checkpoint_last_step",
               "Step of the newest complete checkpoint.",
               static_cast<double>(job.last_checkpoint->step), id);
    out->Gauge("lockstep_checkpoint_last_success_timestamp_seconds",
               "Time of the newest complete checkpoint.",
               UnixSeconds(job.last_checkpoint->time), id);
  }
  const char ranks_help[] =
      "Chief and worker ranks: requested, and running now.";
  out->Gauge("lockstep_job_world_size", ranks_help, TargetWorldSize(job),
             with("kind", "target"));
  out->Gauge("lockstep_job_world_size", ranks_help, ActualWorldSize(snapshot),
             with("kind", "actual"));
  AddProgress(snapshot, view, machines, id, out);
}

void AddAccountMetrics(const Job& job, const JobAccount& account,
                       MetricFamilies* out) {
  const MetricLabels id = {{"job_id", job.spec.name}};
  const auto with = [&](const char* label, std::string_view value) {
    MetricLabels labels = id;
    labels.push_back({label, std::string(value)});
    return labels;
  };
  for (size_t i = 0; i < kTimeStates; ++i) {
    const auto state = static_cast<TimeState>(i);
    out->Counter(
        "lockstep_job_time_seconds_total",
        "A job's time by activity; goodput is the share of productive time.",
        account.seconds(state), with("state", Name(state)));
  }
  for (size_t i = 0; i < kTimeClasses; ++i) {
    const auto time_class = static_cast<TimeClass>(i);
    out->Counter("lockstep_job_rank_seconds_total",
                 "Seconds of all ranks by what they did; each counts once.",
                 account.rank_time().seconds(time_class),
                 with("class", Name(time_class)));
  }
  for (const auto& [pool, held] : account.held()) {
    for (const auto& [resource, seconds] :
         {std::pair("cpu", held.core_seconds),
          std::pair("gpu", held.gpu_seconds)}) {
      MetricLabels labels = with("pool", pool);
      labels.push_back({"resource", resource});
      out->Counter("lockstep_job_resource_seconds_total",
                   "Allocated resources, busy or idle, times seconds.", seconds,
                   std::move(labels));
    }
  }
  out->Counter("lockstep_checkpoints_total", "Complete checkpoints published.",
               static_cast<double>(account.checkpoints().count), id);
  out->Counter("lockstep_checkpoint_bytes_total",
               "Bytes of the complete checkpoints.",
               account.checkpoints().bytes, id);
  const bool native = job.spec.kind == JobKind::kNative;
  // A program whose chief has not joined.
  if (!native && account.training().steps() == 0) return;
  out->Counter("lockstep_job_steps_total",
               "Steps that the chief committed, repeated ones included.",
               account.training().steps(), id);
  out->Counter("lockstep_job_samples_total",
               "Samples of all ranks, repeated ones included.",
               account.training().samples(), id);
  if (account.training().flops()) {
    out->Counter(
        "lockstep_job_flops_total",
        "Floating-point operations of these samples, as reported by the "
        "chief.",
        *account.training().flops(), id);
  }
  out->Counter("lockstep_checkpoint_stall_seconds_total",
               "Time in which the chief's training paused for checkpoints.",
               account.training().checkpoint_stall_seconds(), id);
  // A program's ranks do not know for whom they wait.
  if (!native) return;
  for (const auto& [node, events] : account.stragglers().events()) {
    out->Counter("lockstep_straggler_events_total",
                 "Windows of 20 s and 20 steps in which a rank on this node "
                 "was clearly the last.",
                 static_cast<double>(events), with("node", node));
  }
  for (const auto& [node, rank] : account.stragglers().late_ranks()) {
    out->Gauge("lockstep_straggler_rank",
               "The last rank on this node in the newest such window.", rank,
               {{"job_id", job.spec.name}, {"node", node}});
  }
  if (account.stragglers().wait_ratio()) {
    out->Gauge("lockstep_job_straggler_wait_ratio",
               "Share of the ranks' time spent waiting for the last rank.",
               *account.stragglers().wait_ratio(), id);
  }
}

}  // namespace lockstep::server
