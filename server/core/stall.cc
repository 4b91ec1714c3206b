#include "server/core/stall.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "server/core/job.h"

namespace lockstep::server {
namespace {

constexpr size_t kSteps = 100;
constexpr size_t kFewSteps = 10;

// Less CPU than this counts as idle: background threads.
constexpr double kIdle = 0.02;
// CPU use before the rank stalled is irrelevant.
constexpr Duration kCpuWindow = std::chrono::seconds(2);

bool SamePlace(const RankProgress& a, const RankProgress& b) {
  return a.step == b.step && a.committed_step == b.committed_step &&
         a.collectives == b.collectives && a.phase == b.phase &&
         a.samples == b.samples;
}

bool Waits(const RankProgress& progress) {
  return progress.phase == "allreduce" || progress.phase == "straggler_wait";
}

// True if the rank is between the first and the last all-reduce of a step.
bool Works(const RankProgress& progress) {
  return progress.phase == "compute" || progress.phase == "input" ||
         progress.phase == "optimizer" || progress.phase == "other";
}

// Of a program: whether its process has joined. Others have no page.
bool HasJoined(const RankProgress& progress) { return !progress.phase.empty(); }

// In this phase a program may do anything.
constexpr char kSilentPhase[] = "other";

bool Says(const RankProgress& progress) {
  return progress.phase != kSilentPhase;
}

bool IsDone(const RankProgress& progress) {
  return progress.total_steps > 0 &&
         progress.committed_step >= progress.total_steps;
}

}  // namespace

std::string Describe(const Job& job, const Stall& stall) {
  const std::string who = stall.rank < 0
                              ? fmt::format("all {} ranks stand", stall.waiting)
                              : RankLabel(job, stall.rank) + " stands";
  const std::string others =
      stall.rank < 0 || stall.waiting == 0
          ? ""
          : fmt::format(", and {} other rank{} for it", stall.waiting,
                        stall.waiting == 1 ? " waits" : "s wait");
  // After the deadline the coordinator asks the nodes.
  const std::string sooner =
      stall.rank < 0 && NodesOf(job).size() > 1
          ? fmt::format(
                ", or after {} where their nodes do not reach each other",
                FormatDuration(stall.deadline))
          : "";
  return fmt::format(
      "{} still for {} in {} of step {}{}; the gang is stopped and started "
      "again after {} at the earliest{}",
      who, FormatDuration(stall.still), stall.phase, stall.step, others,
      FormatDuration(stall.limit), sooner);
}

bool StallWatch::Page::UsesCpu() const {
  if (cpu.size() < 2) return false;
  const Duration window = cpu.back().time - cpu.front().time;
  return cpu.back().seconds - cpu.front().seconds > kIdle * ToSeconds(window);
}

void StallWatch::RecordAnnounced(const Stall& stall) {
  announced_ = std::max(announced_, stall.limit);
}

void StallWatch::Reset(Generation generation, JobKind kind) {
  kind_ = kind;
  if (generation == generation_) return;
  generation_ = generation;
  pages_.clear();
  announced_ = {};
  steps_.clear();
  committed_ = -1;
  stepped_.reset();
}

void StallWatch::Take(const RankStatus& report, MonoTime now) {
  const auto [it, first] = pages_.try_emplace(report.rank);
  Page& page = it->second;
  // The time between two distant reports is unknown.
  const bool gap = !first && now - page.reported > options_.fresh;
  if (first || gap || !SamePlace(page.progress, report.progress)) {
    page.since = now;
    announced_ = {};
  }
  page.progress = report.progress;
  page.reported = now;
  page.cpu.push_back({now, report.usage.cpu_seconds});
  while (page.cpu.size() > 2 && now - page.cpu[1].time >= kCpuWindow) {
    page.cpu.pop_front();
  }

  const int64_t committed = report.progress.committed_step;
  if (committed <= committed_) return;
  // Steps committed before its first report, or restored, do not belong to this
  // generation.
  if (committed_ >= 0) {
    if (stepped_ && !gap) {
      const Duration each = (now - *stepped_) / (committed - committed_);
      const auto count = std::min<int64_t>(committed - committed_, kSteps);
      steps_.insert(steps_.end(), static_cast<size_t>(count), each);
      while (steps_.size() > kSteps) steps_.pop_front();
    }
    stepped_ = now;
  }
  committed_ = committed;
}

Duration StallWatch::Deadline() const {
  if (!stepped_) return options_.first_step;
  if (steps_.empty()) return options_.early;
  std::vector<Duration> sorted(steps_.begin(), steps_.end());
  std::sort(sorted.begin(), sorted.end());
  const Duration p99 = sorted[(sorted.size() * 99 - 1) / 100];
  const Duration deadline = std::max(options_.least, options_.factor * p99);
  return steps_.size() < kFewSteps ? std::max(options_.early, deadline)
                                   : deadline;
}

std::optional<StallWatch::Standing> StallWatch::Standstill(MonoTime now) const {
  Standing standing;
  const Duration deadline = Deadline();
  for (const auto& [rank, page] : pages_) {
    if (kind_ == JobKind::kProgram && !HasJoined(page.progress)) continue;
    if (now - page.reported > options_.fresh || IsDone(page.progress) ||
        !(Waits(page.progress) || Works(page.progress))) {
      return std::nullopt;
    }
    // A rank makes progress, so the gang does.
    if (now - page.since <= deadline / 2) return std::nullopt;
    standing[rank] = &page;
  }
  return standing;
}

std::optional<Stall> StallWatch::Frozen(const Standing& standing, int64_t front,
                                        MonoTime now) const {
  const Duration deadline = Deadline();
  std::optional<Stall> found;
  for (const auto& [rank, page] : standing) {
    // A rank that waits in an earlier step arrived there and never left it.
    if (Waits(page->progress) && page->progress.step == front) continue;
    const bool busy = page->progress.phase == "input" || page->UsesCpu();
    const Duration still = now - page->since;
    const Duration limit =
        std::max(announced_, busy ? std::max(options_.patient_least,
                                             options_.patient_factor * deadline)
                                  : deadline);
    if (!found || still - limit > found->still - found->limit) {
      found = Stall{rank,
                    page->progress.phase,
                    page->progress.step,
                    still,
                    deadline,
                    limit,
                    0};
    }
  }
  return found;
}

std::optional<Stall> StallWatch::Silent(const Standing& standing,
                                        MonoTime now) const {
  const Duration deadline = Deadline();
  bool all_say = true;
  bool any_busy = false;
  for (const auto& [rank, page] : standing) {
    all_say = all_say && Says(page->progress);
    any_busy = any_busy || page->UsesCpu();
  }
  if (!all_say && any_busy) return std::nullopt;
  const Duration limit =
      std::max({announced_, options_.patient_factor * deadline,
                all_say ? options_.patient_least : options_.silent_least});
  // The one that is behind, or else does nothing, or else changed first.
  const auto blame = [](const auto& entry) {
    const Page& page = *entry.second;
    return std::make_tuple(page.progress.step, Waits(page.progress),
                           page.UsesCpu(), page.since);
  };
  const auto worst = std::min_element(
      standing.begin(), standing.end(),
      [&](const auto& a, const auto& b) { return blame(a) < blame(b); });
  // All must have stood still for the limit.
  Duration shortest = Duration::max();
  for (const auto& [rank, page] : standing) {
    shortest = std::min(shortest, now - page->since);
  }
  if (shortest <= limit / 2) return std::nullopt;
  return Stall{worst->first,
               worst->second->progress.phase,
               worst->second->progress.step,
               shortest,
               deadline,
               limit,
               0};
}

std::optional<Stall> StallWatch::StalledRank(int32_t world_size,
                                             MonoTime now) const {
  const bool native = kind_ == JobKind::kNative;
  if (native &&
      (world_size < 2 || pages_.size() != static_cast<size_t>(world_size))) {
    return std::nullopt;
  }
  if (!native && !stepped_) return std::nullopt;
  const std::optional<Standing> standing = Standstill(now);
  if (!standing || standing->empty()) return std::nullopt;
  const bool all = standing->size() == static_cast<size_t>(world_size);
  const Duration deadline = Deadline();
  int64_t front = -1;
  for (const auto& [rank, page] : *standing) {
    front = std::max(front, page->progress.step);
  }
  Duration shortest = Duration::max();
  int32_t waiting = 0;
  for (const auto& [rank, page] : *standing) {
    shortest = std::min(shortest, now - page->since);
    if (Waits(page->progress) && page->progress.step == front) ++waiting;
  }
  if (waiting == world_size && world_size > 1) {
    const Duration limit = std::max(
        {options_.all_least, options_.all_factor * deadline, announced_});
    return Stall{-1, "allreduce", front, shortest, deadline, limit, waiting};
  }
  std::optional<Stall> found = Frozen(*standing, front, now);
  const bool seen =
      found && waiting > 0 && all && (native || found->phase != kSilentPhase);
  if (!seen) return native ? std::nullopt : Silent(*standing, now);
  // All ranks must have stalled for the deadline.
  found->limit = std::max(found->limit, found->still - shortest + deadline);
  found->waiting = waiting;
  return found;
}

std::optional<Stall> StallWatch::Check(int32_t world_size, MonoTime now) const {
  std::optional<Stall> stall = StalledRank(world_size, now);
  if (stall && stall->still <= stall->limit) stall.reset();
  return stall;
}

}  // namespace lockstep::server
