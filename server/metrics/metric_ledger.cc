#include "server/metrics/metric_ledger.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/v1/event.pb.h"
#include "server/metrics/job_metrics.h"
#include "server/metrics/metric_names.h"

namespace lockstep::server {
namespace {

PlacementResult ResultOf(Reason reason) {
  switch (reason) {
    case Reason::kNoNodes:
      return PlacementResult::kNoNodes;
    case Reason::kNoCapacity:
      return PlacementResult::kNoCapacity;
    case Reason::kBehindOthers:
      return PlacementResult::kBehindOthers;
    case Reason::kBackoff:
      return PlacementResult::kBackoff;
    default:
      return PlacementResult::kOther;
  }
}

// Counts the events of `after` that `before` lacks. New ones are appended and
// old ones removed.
size_t NewEvents(const Job& before, const Job& after) {
  size_t count = 0;
  for (auto it = after.events.rbegin(); it != after.events.rend(); ++it) {
    if (!before.events.empty() && *it == before.events.back()) break;
    ++count;
  }
  return count;
}

// All reasons of the API except "none".
std::vector<Reason> AllReasons() {
  const google::protobuf::EnumDescriptor& all = *v1::Reason_descriptor();
  std::vector<Reason> reasons;
  for (int i = 0; i < all.value_count(); ++i) {
    const int number = all.value(i)->number();
    if (number == v1::REASON_UNSPECIFIED) continue;
    reasons.push_back(static_cast<Reason>(number));
  }
  return reasons;
}

constexpr NodeState kFailureStates[] = {NodeState::kUnknown, NodeState::kLost,
                                        NodeState::kQuarantined};

}  // namespace

std::string_view Name(PlacementResult result) {
  static constexpr std::string_view kNames[] = {
      "placed", "no_nodes", "no_capacity", "behind_others", "backoff", "other"};
  return kNames[static_cast<size_t>(result)];
}

MetricLedger::MetricLedger()
    : commits_(kShortBuckets), passes_(kShortBuckets) {}

void MetricLedger::OnJob(const Job* before, const Job& after, Time now) {
  MutexLock lock(&mu_);
  if (before == nullptr) return;  // The next Look() finds it.
  for (size_t i = after.events.size() - NewEvents(*before, after);
       i < after.events.size(); ++i) {
    ++events_[after.events[i].reason];
  }
  auto known = accounts_.find(after.spec.name);
  if (known == accounts_.end() || known->second.first != after.uid) {
    known = accounts_
                .insert_or_assign(
                    after.spec.name,
                    std::make_pair(after.uid, JobAccount(*before, now)))
                .first;
  }
  known->second.second.OnJob(*before, after, pools_, now, &timings_);
}

void MetricLedger::OnCommit(Duration took, bool ok) {
  MutexLock lock(&mu_);
  commits_.Observe(ToSeconds(took));
  if (!ok) ++failed_commits_;
}

void MetricLedger::OnRoundTrip(const std::string& pool, Duration took) {
  MutexLock lock(&mu_);
  round_trips_.try_emplace(pool, kShortBuckets)
      .first->second.Observe(ToSeconds(took));
}

void MetricLedger::OnSchedule(Duration took, const ScheduleResult& result) {
  MutexLock lock(&mu_);
  passes_.Observe(ToSeconds(took));
  placements_[static_cast<size_t>(PlacementResult::kPlaced)] +=
      static_cast<int64_t>(result.placed.size());
  for (const auto& [name, cause] : result.waiting) {
    ++placements_[static_cast<size_t>(ResultOf(cause.reason))];
  }
}

void MetricLedger::LookAtNodes(const CoordinatorView& view) {
  const double passed =
      looked_ ? ToSeconds(std::max(Duration{}, view.time.mono - *looked_)) : 0;
  // Resources of jobs that make no steps, by node.
  std::map<NodeName, Resources> stalled;
  for (const auto& entry : view.jobs) {
    const Job& job = *entry.snapshot.job;
    const auto account = accounts_.find(job.spec.name);
    if (account == accounts_.end() ||
        account->second.second.state() != TimeState::kStalled) {
      continue;
    }
    for (const Hold& hold : job.holds) {
      stalled[hold.node].cpus += hold.resources.cpus;
      stalled[hold.node].gpus += static_cast<int32_t>(hold.gpus.size());
    }
  }
  for (const NodeSnapshot& node : view.nodes) {
    const NodeInfo& info = node.member.info;
    pools_[info.name] = info.pool;
    round_trips_.try_emplace(info.pool, kShortBuckets);
    const auto idle = [&](const char* resource, const char* reason,
                          double amount) {
      mu_.AssertHeld();
      idle_[{info.pool, resource, reason}] += std::max(0.0, amount) * passed;
    };
    const NodeState state = node.member.state;
    const double cpus = info.capacity.cpus - node.allocated.cpus;
    const double gpus = static_cast<double>(info.gpus.size()) -
                        static_cast<double>(node.allocated.gpus);
    const bool ready = state == NodeState::kReady;
    const bool drained = state == NodeState::kDraining ||
                         state == NodeState::kDrained ||
                         state == NodeState::kQuarantined;
    idle("cpu", "free", ready ? cpus : 0);
    idle("gpu", "free", ready ? gpus : 0);
    idle("cpu", "drained", drained ? cpus : 0);
    idle("gpu", "drained", drained ? gpus : 0);
    idle("cpu", "job_stalled", stalled[info.name].cpus);
    idle("gpu", "job_stalled", stalled[info.name].gpus);
    for (const NodeState failure : kFailureStates) {
      node_failures_.try_emplace({info.pool, failure}, 0);
    }
    const auto known = node_states_.find(info.name);
    if (known != node_states_.end() && known->second != state &&
        node_failures_.contains({info.pool, state})) {
      ++node_failures_[{info.pool, state}];
    }
    node_states_[info.name] = state;
  }
  std::set<std::string_view> names, pools;
  for (const auto& node : view.nodes) {
    names.insert(node.member.info.name);
    pools.insert(node.member.info.pool);
  }
  std::erase_if(round_trips_, [&](const auto& known) {
    return !pools.contains(known.first);
  });
  std::erase_if(node_states_, [&](const auto& known) {
    return !names.contains(known.first);
  });
  std::erase_if(
      pools_, [&](const auto& known) { return !names.contains(known.first); });
}

void MetricLedger::Look(const CoordinatorView& view) {
  MutexLock lock(&mu_);
  if (looked_ && view.time.mono < *looked_) return;
  for (const auto& entry : view.jobs) {
    const Job& job = *entry.snapshot.job;
    auto known = accounts_.find(job.spec.name);
    if (known == accounts_.end() || known->second.first != job.uid) {
      accounts_.insert_or_assign(
          job.spec.name, std::make_pair(job.uid, JobAccount(job, view.time)));
      continue;
    }
    if (IsFinal(job.state)) continue;
    known->second.second.Look(entry, pools_, view.time, &timings_);
  }
  std::set<std::string_view> names;
  for (const auto& entry : view.jobs) {
    names.insert(entry.snapshot.job->spec.name);
  }
  std::erase_if(accounts_, [&](const auto& account) {
    return !names.contains(account.first);
  });
  LookAtNodes(view);
  looked_ = view.time.mono;
}

std::optional<int32_t> MetricLedger::LateRank(const JobName& job) const {
  MutexLock lock(&mu_);
  const auto account = accounts_.find(job);
  if (account == accounts_.end()) return std::nullopt;
  return account->second.second.stragglers().late_rank();
}

void MetricLedger::Collect(const CoordinatorView& view,
                           MetricFamilies* out) const {
  MutexLock lock(&mu_);
  out->AddHistogram("lockstep_state_commit_seconds",
                    "Transactions of the store.", commits_);
  out->Counter("lockstep_state_commit_failures_total",
               "Transactions that the store could not write.",
               static_cast<double>(failed_commits_));
  for (const auto& [pool, histogram] : round_trips_) {
    out->AddHistogram(
        "lockstep_node_heartbeat_rtt_seconds",
        "Time from a heartbeat to its answer, by the node's clock.", histogram,
        {{"pool", pool}});
  }
  out->AddHistogram("lockstep_scheduler_pass_seconds",
                    "Duration of scheduling passes over the whole queue.",
                    passes_);
  for (size_t i = 0; i < kPlacementResults; ++i) {
    out->Counter(
        "lockstep_scheduler_placements_total",
        "Placement attempts of jobs, by result; a waiting job counts "
        "in each pass.",
        static_cast<double>(placements_[i]),
        {{"queue", kQueue},
         {"result", std::string(Name(static_cast<PlacementResult>(i)))}});
  }
  for (const auto& [phase, histogram] : timings_.launch) {
    out->AddHistogram("lockstep_job_launch_seconds",
                      "Time from submission to the first step, and its parts.",
                      histogram, {{"phase", phase}});
  }
  for (const auto& [phase, histogram] : timings_.recovery) {
    out->AddHistogram("lockstep_job_recovery_seconds",
                      "Time from a failure to the first step after it, and its "
                      "parts.",
                      histogram, {{"phase", phase}});
  }
  for (const auto& [phase, histogram] : timings_.in_place.phases) {
    out->AddHistogram("lockstep_in_place_recovery_seconds",
                      "Time from the decision to replace ranks until all ranks "
                      "train again, and its parts.",
                      histogram, {{"phase", phase}});
  }
  for (const auto& [kind, count] : timings_.in_place.kinds) {
    out->Counter("lockstep_in_place_recoveries_total",
                 "Recoveries in place that ended well, by what was replaced.",
                 static_cast<double>(count), {{"kind", kind}});
  }
  for (const Reason reason : AllReasons()) {
    const auto count = events_.find(reason);
    out->Counter(
        "lockstep_events_total", "Events of jobs, by reason.",
        count == events_.end() ? 0 : static_cast<double>(count->second),
        {{"type", LowerName(Name(reason))}});
  }
  for (const auto& [key, count] : node_failures_) {
    out->Counter(
        "lockstep_node_failures_total",
        "Number of times that nodes entered this state.",
        static_cast<double>(count),
        {{"pool", key.first}, {"reason", LowerName(Name(key.second))}});
  }
  for (const auto& [key, seconds] : idle_) {
    const auto& [pool, resource, reason] = key;
    out->Counter("lockstep_idle_resource_seconds_total",
                 "Resource-seconds without productive use.", seconds,
                 {{"pool", pool}, {"resource", resource}, {"reason", reason}});
  }
  for (const auto& entry : view.jobs) {
    const auto account = accounts_.find(entry.snapshot.job->spec.name);
    if (account == accounts_.end()) continue;
    AddAccountMetrics(*entry.snapshot.job, account->second.second, out);
  }
}

}  // namespace lockstep::server
