#include "server/service/metrics.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  void Gauge(const std::string& name, const std::string& help, double value,
             Labels labels = {}) {
    Add(name, help, MetricType::Gauge, value, std::move(labels));
  }
  void Counter(const std::string& name, const std::string& help, double value,
               Labels labels = {}) {
    Add(name, help, MetricType::Counter, value, std::move(labels));
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  void Add(const std::string& name, const std::string& help, MetricType type,
           double value, Labels labels) {
    auto it = std::find_if(
        families_.begin(), families_.end(),
        [&](const MetricFamily& family) { return family.name == name; });
    if (it == families_.end()) {
      MetricFamily family;
      family.name = name;
      family.help = help;
      family.type = type;
      it = families_.insert(families_.end(), std::move(family));
    }
    ClientMetric metric;
    metric.label = std::move(labels);
    if (type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    it->metric.push_back(std::move(metric));
  }

  std::vector<MetricFamily> families_;
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

void AddJob(const JobSnapshot& snapshot, Families* out) {
  const Job& job = *snapshot.job;
  const Labels id = {{"job_id", job.spec.name}};
  int32_t world_size = 0;
  for (const RoleSpec& role : job.spec.roles) {
    if (role.type == TaskType::kChief || role.type == TaskType::kWorker) {
      world_size += role.count * role.ranks_per_task;
    }
  }
  out->Gauge("lockstep_job_info",
             "A job that has not ended: who and how large.", 1,
             {{"job_id", job.spec.name},
              {"name", job.spec.name},
              {"user", job.owner},
              {"kind", std::string(Name(job.spec.kind))},
              {"world_size", std::to_string(world_size)}});
  for (const JobState state : kAllJobStates) {
    out->Gauge("lockstep_job_state", "1 for the state that the job is in.",
               job.state == state ? 1 : 0,
               {{"job_id", job.spec.name}, {"state", Lower(Name(state))}});
  }
  out->Counter("lockstep_job_restarts_total", "Attempts after the first.",
               job.restarts, id);
  out->Counter(
      "lockstep_job_cost_total",
      "Use so far at the site's prices, idle or not.", snapshot.bill.cost,
      {{"job_id", job.spec.name}, {"currency", snapshot.bill.currency}});
  if (job.last_checkpoint) {
    out->Gauge("lockstep_checkpoint_last_step",
               "Step of the newest complete checkpoint.",
               static_cast<double>(job.last_checkpoint->step), id);
    out->Gauge(
        "lockstep_checkpoint_last_success_timestamp_seconds",
        "When the newest complete checkpoint was published.",
        static_cast<double>(ToUnixNanos(job.last_checkpoint->time)) / 1e9, id);
  }
  if (!snapshot.progress) return;
  const RankProgress& chief = snapshot.progress->chief;
  out->Gauge("lockstep_job_step", "Newest step that the chief committed.",
             static_cast<double>(chief.committed_step), id);
  out->Gauge("lockstep_job_epoch", "Epochs done, with the fraction.",
             chief.epoch, id);
  out->Gauge("lockstep_job_loss", "Loss that the chief reported last.",
             chief.loss, id);
  out->Gauge("lockstep_job_samples_per_second",
             "Samples of all ranks, over the last 10 s.",
             snapshot.progress->samples_per_second, id);
  if (snapshot.progress->eta) {
    out->Gauge("lockstep_job_eta_seconds", "Time left at the present rate.",
               ToSeconds(*snapshot.progress->eta), id);
  }
}

}  // namespace

std::vector<MetricFamily> CoordinatorMetrics::Collect() const {
  const CoordinatorStats stats = coordinator_->Stats();
  Families out;
  out.Gauge("lockstep_leader", "1 on the coordinator that decides.", 1);
  out.Gauge("lockstep_store_writable",
            "0 while commits fail: commands are refused.",
            coordinator_->store_healthy() ? 1 : 0);
  for (const auto& [state, count] : stats.nodes) {
    out.Gauge("lockstep_nodes", "Nodes by state.", static_cast<double>(count),
              {{"state", Lower(Name(state))}});
  }
  for (const auto& [state, count] : stats.jobs) {
    out.Gauge("lockstep_jobs", "Jobs by state, ended ones included.",
              static_cast<double>(count), {{"state", Lower(Name(state))}});
  }
  const auto resources = [&out](const std::string& name,
                                const std::string& help, const Resources& r) {
    out.Gauge(name, help, r.cpus, {{"resource", "cpu"}});
    out.Gauge(name, help, static_cast<double>(r.memory_bytes),
              {{"resource", "memory_bytes"}});
    out.Gauge(name, help, r.gpus, {{"resource", "gpu"}});
  };
  resources("lockstep_resources_capacity", "What all nodes have.",
            stats.capacity);
  resources("lockstep_resources_allocated", "What jobs hold of it.",
            stats.allocated);
  out.Gauge("lockstep_queue_oldest_pending_seconds",
            "How long the oldest queued job has waited.",
            stats.oldest_queued_seconds);
  out.Counter("lockstep_state_commits_total", "Transactions of the store.",
              static_cast<double>(stats.commits));
  out.Counter("lockstep_state_commit_failures_total",
              "Transactions that the store could not write.",
              static_cast<double>(stats.failed_commits));
  out.Counter("lockstep_state_commit_seconds_total",
              "Time spent in transactions.", stats.commit_seconds);
  for (const JobSnapshot& job : stats.live_jobs) AddJob(job, &out);
  return out.Take();
}

}  // namespace lockstep
