#include "server/core/gpu_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep::server {
namespace {

// Of the cluster's GPUs; beyond it nothing new is remembered.
constexpr size_t kMostGpus = 100'000;

// Starts or ends the time for which something has been so, and returns it.
Duration Lasts(bool so, MonoTime now, std::optional<MonoTime>* since) {
  if (!so) since->reset();
  if (so && !*since) *since = now;
  return so ? now - **since : Duration{};
}

}  // namespace

std::optional<GpuVerdict> GpuJudge::TakeXid(int32_t xid) const {
  if (!options_.fatal_xids.contains(xid)) return std::nullopt;
  return GpuVerdict{fmt::format("Xid {}", xid), std::nullopt};
}

GpuVerdict GpuJudge::Withhold(std::string reason, MonoTime now,
                              History* history) const {
  if (now >= history->fresh_until) history->times = 0;
  Duration length = options_.first;
  for (int i = 0; i < history->times && length < options_.longest; ++i) {
    length *= 2;
  }
  length = std::min(length, options_.longest);
  ++history->times;
  history->fresh_until = now + length + options_.longest;
  return {std::move(reason), length};
}

std::string GpuJudge::StandingTrouble(const GpuUsage& usage, MonoTime now,
                                      History* history) const {
  if (usage.remap_failed.value_or(false)) {
    return "a row of its memory could not be replaced";
  }
  if (usage.remap_pending.value_or(false)) {
    return "a row of its memory waits for a reset to be replaced";
  }
  const int32_t width = usage.pcie_width.value_or(0);
  const int32_t most = usage.pcie_width_max.value_or(0);
  // A GPU that does not answer has no width.
  const bool narrow = width > 0 && width < most;
  if (Lasts(narrow, now, &history->narrow) >= options_.standing && narrow) {
    return fmt::format("its PCIe link has {} of {} lanes", width, most);
  }
  const int32_t links = usage.nvlinks.value_or(history->most_nvlinks);
  history->most_nvlinks = std::max(history->most_nvlinks, links);
  const bool unlinked = links < history->most_nvlinks;
  if (Lasts(unlinked, now, &history->unlinked) >= options_.standing &&
      unlinked) {
    return fmt::format("{} of its {} NVLinks are active", links,
                       history->most_nvlinks);
  }
  if (!usage.slowdown.empty()) {
    history->slow_last = now;
    if (!history->slow_since) history->slow_since = now;
  } else if (history->slow_since &&
             now - history->slow_last > options_.slow_break) {
    history->slow_since.reset();
  }
  if (!usage.slowdown.empty() && now - *history->slow_since >= options_.slow) {
    return fmt::format("its clocks are low to protect it ({}) for {}",
                       usage.slowdown,
                       FormatDuration(now - *history->slow_since));
  }
  return "";
}

GpuJudge::History* GpuJudge::HistoryOf(const std::string& uuid) {
  if (uuid.empty() || (gpus_.size() >= kMostGpus && !gpus_.contains(uuid))) {
    return nullptr;
  }
  return &gpus_[uuid];
}

std::optional<GpuVerdict> GpuJudge::TakeReading(const Gpu& gpu,
                                                const GpuUsage& usage,
                                                bool withheld, Time now) {
  History* const history = HistoryOf(gpu.uuid);
  if (history == nullptr) return std::nullopt;
  int64_t more = 0;
  if (usage.uncorrected_errors) {
    // A counter that fell began again with the driver.
    const int64_t before = history->errors.value_or(*usage.uncorrected_errors);
    more = std::max<int64_t>(0, *usage.uncorrected_errors - before);
    history->errors = usage.uncorrected_errors;
  }
  std::string trouble = StandingTrouble(usage, now.mono, history);
  if (gpu.lift_end && now.wall < *gpu.lift_end) trouble.clear();
  if (more > 0) {
    trouble = fmt::format("{} uncorrected memory error{}", more,
                          more == 1 ? "" : "s");
  }
  if (withheld || trouble.empty()) return std::nullopt;
  return Withhold(std::move(trouble), now.mono, history);
}

GpuVerdict GpuJudge::TakeFailedCheck(const std::string& uuid,
                                     std::string reason, Time now) {
  History* const history = HistoryOf(uuid);
  if (history == nullptr) return {std::move(reason), options_.first};
  return Withhold(std::move(reason), now.mono, history);
}

void GpuJudge::NoteRun(const std::vector<std::string>& uuids,
                       const std::set<std::string>& died,
                       const std::string& uid) {
  for (const std::string& uuid : uuids) {
    History* const history = HistoryOf(uuid);
    if (history == nullptr) continue;
    std::deque<Run>& runs = history->runs;
    runs.push_back({uid, died.contains(uuid)});
    if (runs.size() > options_.runs) runs.pop_front();
  }
}

std::optional<GpuVerdict> GpuJudge::JudgeRuns(const std::string& uuid,
                                              Time now) {
  const auto it = gpus_.find(uuid);
  if (it == gpus_.end()) return std::nullopt;
  std::deque<Run>& runs = it->second.runs;
  std::set<std::string> jobs;
  size_t deaths = 0;
  for (const Run& run : runs) {
    if (!run.died) continue;
    ++deaths;
    jobs.insert(run.uid);
  }
  if (deaths < options_.deaths || jobs.size() < 2 || deaths * 2 < runs.size()) {
    return std::nullopt;
  }
  size_t others = 0, others_died = 0;
  for (const auto& [other, history] : gpus_) {
    if (other == uuid) continue;
    others += history.runs.size();
    others_died += static_cast<size_t>(
        std::count_if(history.runs.begin(), history.runs.end(),
                      [](const Run& run) { return run.died; }));
  }
  // Without others there is nothing to compare with.
  if (others == 0 || 2 * others_died * runs.size() > deaths * others) {
    return std::nullopt;
  }
  GpuVerdict verdict = Withhold(
      fmt::format("{} of the last {} runs on it died there first, of others "
                  "{} of {}",
                  deaths, runs.size(), others_died, others),
      now.mono, &it->second);
  runs.clear();
  return verdict;
}

void GpuJudge::Lift(const std::string& uuid) {
  const auto it = gpus_.find(uuid);
  if (it == gpus_.end()) return;
  History fresh;
  fresh.errors = it->second.errors;
  fresh.most_nvlinks = it->second.most_nvlinks;
  it->second = std::move(fresh);
}

}  // namespace lockstep::server
