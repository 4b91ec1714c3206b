#include "server/core/idle_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

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
      "no rank has worked for {} (less than {:.0f} % of a core and of a GPU, "
      "and {:.0f} KiB/s of network and of disk, each); what it holds has cost "
      "{:.2f} {} meanwhile",
      FormatDuration(idle), 100 * IdleWatch::kCpuFloor,
      IdleWatch::kTrafficFloor / 1024, hours * CostPerHour(spec, prices),
      prices.currency);
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

bool IdleWatch::Window::Take(const std::optional<double>& now_total,
                             Duration length, double floor, MonoTime now) {
  // The first reading, or a counter that begins anew.
  if (!total || !now_total || *now_total < *total) {
    total = now_total;
    begin = now;
    return false;
  }
  if (now - begin < length) return false;
  const double rate = (*now_total - *total) / ToSeconds(now - begin);
  total = now_total;
  begin = now;
  return rate > floor;
}

// Every window moves on.
bool IdleWatch::UsesMachine(const Usage& usage,
                            const std::optional<GpusNow>& gpus, MonoTime now,
                            Rank* rank) {
  const auto known = [](const std::optional<int64_t>& bytes) {
    return bytes ? std::optional(static_cast<double>(*bytes)) : std::nullopt;
  };
  std::optional<double> network = known(usage.network_sent_bytes);
  if (network && usage.network_received_bytes) {
    *network += static_cast<double>(*usage.network_received_bytes);
  }
  const bool uses[] = {
      rank->cpu.Take(usage.cpu_seconds, kWindow, kCpuFloor, now),
      rank->network.Take(network, kTrafficWindow, kTrafficFloor, now),
      rank->disk.Take(known(usage.disk_bytes), kTrafficWindow, kTrafficFloor,
                      now),
      rank->log.Take(known(usage.log_bytes), kLogWindow, kLogFloor, now),
      gpus && gpus->utilization.value_or(0) > kGpuFloor,
      gpus && gpus->power_ratio.value_or(0) > kPowerFactor};
  return std::any_of(std::begin(uses), std::end(uses),
                     [](bool each) { return each; });
}

void IdleWatch::Take(const RankStatus& report,
                     const std::optional<GpusNow>& gpus, MonoTime now) {
  const auto [at, is_new] = ranks_.try_emplace(report.rank);
  Rank& rank = at->second;
  // It was restarted alone, or is seen for the first time.
  if (is_new || report.usage.cpu_seconds < rank.cpu_seconds) {
    rank = Rank();
    rank.progress = report.progress;
    rank.worked = now;
  }
  if (ShowsProgress(rank.progress, report.progress)) rank.worked = now;
  if (const auto since = SinceSign(report.progress)) {
    rank.worked = std::max(rank.worked, now - *since);
  }
  if (UsesMachine(report.usage, gpus, now, &rank)) rank.worked = now;
  rank.cpu_seconds = report.usage.cpu_seconds;
  rank.gpus_unknown = gpus && !gpus->utilization;
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
