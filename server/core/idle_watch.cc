#include "server/core/idle_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::server {
namespace {

// A sign of progress that is more than activity.
std::optional<Duration> SinceSign(const RankProgress& progress) {
  if (!progress.signs || progress.signs->source == SignSource::kNone ||
      progress.signs->source == SignSource::kActivity) {
    return std::nullopt;
  }
  return progress.signs->still;
}

std::optional<Duration> TimeOr(const std::optional<Duration>& own,
                               const std::optional<Duration>& site) {
  if (!own) return site;
  if (*own == Duration{}) return std::nullopt;
  return own;
}

}  // namespace

IdlePolicy IdlePolicyOf(const JobSpec& spec, const IdlePolicy& site) {
  return {TimeOr(spec.idle_notice, site.notice),
          TimeOr(spec.idle_stop, site.stop)};
}

std::string Describe(const JobSpec& spec, const IdlePolicy& policy,
                     Duration idle, const Prices& prices) {
  const double hours = ToSeconds(idle) / 3600;
  std::string text = fmt::format(
      "no rank has worked for {} (less than {:.0f} % of a core and of a GPU "
      "each); what it holds has cost {:.2f} {} meanwhile",
      FormatDuration(idle), 100 * IdleWatch::kCpuFloor,
      hours * CostPerHour(spec, prices), prices.currency);
  if (policy.stop) {
    text +=
        fmt::format("; it is stopped after {}", FormatDuration(*policy.stop));
  }
  return text;
}

void IdleWatch::Reset(Generation generation) {
  if (generation == generation_) return;
  generation_ = generation;
  ranks_.clear();
}

bool IdleWatch::ShowsProgress(const RankProgress& before,
                              const RankProgress& now) {
  return now.step != before.step ||
         now.committed_step != before.committed_step ||
         now.collectives != before.collectives ||
         now.checkpoints != before.checkpoints || now.samples != before.samples;
}

void IdleWatch::Take(const RankStatus& report, bool has_gpus, MonoTime now) {
  const auto [at, is_new] = ranks_.try_emplace(report.rank);
  Rank& rank = at->second;
  const Usage& usage = report.usage;
  // It was restarted alone, or is seen for the first time.
  if (is_new || usage.cpu_seconds < rank.cpu_seconds) {
    rank = {report.progress, now, now, now, usage.cpu_seconds, false};
  }
  if (ShowsProgress(rank.progress, report.progress)) rank.worked = now;
  if (const auto since = SinceSign(report.progress)) {
    rank.worked = std::max(rank.worked, now - *since);
  }
  if (now - rank.window >= kWindow) {
    const double cores =
        (usage.cpu_seconds - rank.cpu_seconds) / ToSeconds(now - rank.window);
    if (cores > kCpuFloor) rank.worked = now;
    rank.window = now;
    rank.cpu_seconds = usage.cpu_seconds;
  }
  if (std::max(usage.gpu_utilization.value_or(0),
               usage.gpu_utilization_peak.value_or(0)) > kGpuFloor) {
    rank.worked = now;
  }
  rank.gpus_unknown = has_gpus && !usage.gpu_utilization;
  rank.progress = report.progress;
  rank.reported = now;
}

std::optional<MonoTime> IdleWatch::IdleSince(int32_t count,
                                             const std::set<int32_t>& ended,
                                             MonoTime now) const {
  std::optional<MonoTime> since;
  for (int32_t number = 0; number < count; ++number) {
    if (ended.contains(number)) continue;
    const auto rank = ranks_.find(number);
    if (rank == ranks_.end() || rank->second.gpus_unknown ||
        now - rank->second.reported > kFresh) {
      return std::nullopt;
    }
    since = std::max(since.value_or(MonoTime::min()), rank->second.worked);
  }
  // A window that has not ended yet is no work.
  if (since && now - *since <= kWindow) return std::nullopt;
  return since;
}

}  // namespace lockstep::server
