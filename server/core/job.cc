#include "server/core/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::server {
namespace {

// Of counters that may be unknown.
std::optional<int64_t> SumOf(const std::optional<int64_t>& before,
                             const std::optional<int64_t>& after) {
  if (!before || !after) return before ? before : after;
  return *before + *after;
}

Usage SumOf(const Usage& before, const Usage& after) {
  // std::nullopt is less than any value.
  Usage sum = after;
  sum.cpu_seconds += before.cpu_seconds;
  sum.seconds += before.seconds;
  sum.memory_peak_bytes =
      std::max(before.memory_peak_bytes, after.memory_peak_bytes);
  sum.cpu_peak_cores = std::max(before.cpu_peak_cores, after.cpu_peak_cores);
  sum.gpu_utilization_peak =
      std::max(before.gpu_utilization_peak, after.gpu_utilization_peak);
  sum.gpu_memory_peak_bytes =
      std::max(before.gpu_memory_peak_bytes, after.gpu_memory_peak_bytes);
  sum.network_sent_bytes =
      SumOf(before.network_sent_bytes, after.network_sent_bytes);
  sum.network_received_bytes =
      SumOf(before.network_received_bytes, after.network_received_bytes);
  sum.disk_bytes = SumOf(before.disk_bytes, after.disk_bytes);
  // One log has all starts.
  sum.log_bytes = std::max(before.log_bytes, after.log_bytes);
  if (!after.gpu_utilization) {
    sum.gpu_utilization = before.gpu_utilization;
  } else if (before.gpu_utilization && sum.seconds > 0) {
    sum.gpu_utilization = (*before.gpu_utilization * before.seconds +
                           *after.gpu_utilization * after.seconds) /
                          sum.seconds;
  }
  return sum;
}

}  // namespace

std::set<NodeName> NodesOf(const Job& job) {
  std::set<NodeName> nodes;
  for (const TaskStatus& task : job.tasks) nodes.insert(task.node);
  return nodes;
}

std::vector<const RankStatus*> RanksOf(const Job& job) {
  std::vector<const RankStatus*> ranks;
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& rank : task.ranks) ranks.push_back(&rank);
  }
  return ranks;
}

const RankStatus& DecidingRank(const Job& job) {
  return job.tasks.front().ranks.front();
}

Usage UsageOf(const Job& job, const RankStatus& report) {
  const auto lone = job.lone_ranks.find(report.rank);
  if (lone == job.lone_ranks.end()) return report.usage;
  for (const RankStatus* rank : RanksOf(job)) {
    // The process is already included in `before`.
    if (rank->rank == report.rank && report.restarts < rank->restarts) {
      return lone->second.before;
    }
  }
  return SumOf(lone->second.before, report.usage);
}

std::string RanksLabel(const std::set<int32_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "));
}

std::string RankLabel(const Job& job, int32_t rank) {
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& r : task.ranks) {
      if (r.rank == rank) {
        return fmt::format("rank {} ({} on {})", rank,
                           TaskName(task.type, task.index), task.node);
      }
    }
  }
  return fmt::format("rank {}", rank);
}

std::string Shorten(std::string sentence, size_t most) {
  static constexpr std::string_view kMore = "...";
  if (sentence.size() <= most) return sentence;
  size_t end = most - kMore.size();
  while (end > 0 && (static_cast<unsigned char>(sentence[end]) & 0xc0) == 0x80)
    --end;
  sentence.resize(end);
  sentence += kMore;
  return sentence;
}

void AddEvent(Job* job, Reason reason, std::string message, Time now) {
  Event event;
  event.time = now.wall;
  event.generation = job->generation;
  event.reason = reason;
  event.message = Shorten(std::move(message));
  job->events.push_back(std::move(event));
  if (job->events.size() > kMaxEvents) {
    job->events.erase(job->events.begin() + kKeptFirstEvents);
  }
}

void AddEventOnce(Job* job, Reason reason, const std::string& message,
                  Time now) {
  const bool known = std::any_of(
      job->events.begin(), job->events.end(), [&](const Event& event) {
        return event.generation == job->generation && event.message == message;
      });
  if (!known) AddEvent(job, reason, message, now);
}

void EnterState(Job* job, JobState state, Cause cause, Time now) {
  cause.message = Shorten(std::move(cause.message));
  if (!IsFinal(job->state)) {
    job->phase_durations[job->state] +=
        std::max(Duration{}, now.wall - job->state_time);
  }
  job->state = state;
  job->state_time = now.wall;
  if (IsFinal(state)) job->end_time = now.wall;
  if (state == JobState::kRunning && !job->start_time) {
    job->start_time = now.wall;
  }
  AddEvent(job, cause.reason,
           cause.message.empty()
               ? std::string(Name(state))
               : fmt::format("{}: {}", Name(state), cause.message),
           now);
  job->cause = std::move(cause);
}

Duration PhaseDuration(const Job& job, JobState phase, WallTime now) {
  Duration total{};
  if (auto it = job.phase_durations.find(phase);
      it != job.phase_durations.end()) {
    total = it->second;
  }
  if (job.state == phase && !IsFinal(phase)) {
    total += std::max(Duration{}, now - job.state_time);
  }
  return total;
}

}  // namespace lockstep::server
