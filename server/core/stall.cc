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

// Whether what a rank does in its collective is the same, as far as known.
bool SameWait(const std::optional<CollectiveWait>& a,
              const std::optional<CollectiveWait>& b) {
  if (!a || !b || !b->responsive) return true;
  return a->waiting == b->waiting && a->peer == b->peer && a->waits == b->waits;
}

// Of a program's rank, since its last sign of progress.
Duration StillOf(const RankProgress& progress, MonoTime reported,
                 MonoTime now) {
  return progress.signs->still + (now - reported);
}

bool IsDone(const RankProgress& progress) {
  return progress.total_steps > 0 &&
         progress.committed_step >= progress.total_steps;
}

// Of a program whose ranks have not joined.
bool IsOfSigns(const Stall& stall) { return stall.phase.empty(); }

// "its log names no new step after 120".
std::string Missing(const Stall& stall) {
  switch (stall.source) {
    case SignSource::kLog:
      return stall.log_step ? fmt::format("its log names no new step after {}",
                                          *stall.log_step)
                            : std::string("its log names no new step");
    case SignSource::kFiles:
      return "nothing new is in its output directory";
    case SignSource::kActivity:
      return "it uses neither CPU nor GPU nor disk any more";
    default:
      return "it has used neither CPU nor GPU nor disk so far";
  }
}

std::string NoProgress(const Job& job, const Stall& stall) {
  return fmt::format("{} shows no progress for {}: {}; the limit is {}",
                     RankLabel(job, stall.rank), FormatDuration(stall.still),
                     Missing(stall), FormatDuration(stall.limit));
}

std::string StandsStill(const Job& job, const Stall& stall) {
  const std::string who = stall.rank < 0
                              ? fmt::format("all {} ranks stand", stall.waiting)
                              : RankLabel(job, stall.rank) + " stands";
  const std::string others =
      stall.rank < 0 || stall.waiting == 0
          ? ""
          : fmt::format(", and {} other rank{} for it", stall.waiting,
                        stall.waiting == 1 ? " waits" : "s wait");
  return fmt::format("{} still for {} in {} of step {}{}", who,
                     FormatDuration(stall.still), stall.phase, stall.step,
                     others);
}

}  // namespace

HangPolicy HangPolicyOf(const JobSpec& spec) {
  if (spec.hang != HangPolicy::kUnspecified) return spec.hang;
  return spec.kind == JobKind::kNative ? HangPolicy::kRestart
                                       : HangPolicy::kWarn;
}

std::string Describe(const Job& job, const Stall& stall) {
  const std::string what = stall.rank >= 0 && IsOfSigns(stall)
                               ? NoProgress(job, stall)
                               : StandsStill(job, stall);
  if (HangPolicyOf(job.spec) == HangPolicy::kWarn) {
    return what + "; it runs on, as its --hang warn says";
  }
  if (job.spec.kind == JobKind::kProgram) {
    return what +
           "; it is stopped and started again, as its --hang restart "
           "says";
  }
  // After the deadline the coordinator asks the nodes.
  const std::string sooner =
      stall.rank < 0 && NodesOf(job).size() > 1
          ? fmt::format(
                ", or after {} where their nodes do not reach each other",
                FormatDuration(stall.deadline))
          : "";
  return fmt::format(
      "{}; the gang is stopped and started again after {} at the earliest{}",
      what, FormatDuration(stall.limit), sooner);
}

Cause CauseOf(const Job& job, const Stall& stall) {
  if (stall.rank < 0) {
    return {
        Reason::kStalled,
        fmt::format("all {} ranks have stalled in the all-reduce of step {} "
                    "for {}: the network between them is cut, or one was "
                    "stopped there",
                    stall.waiting, stall.step, FormatDuration(stall.still))};
  }
  if (IsOfSigns(stall)) return {Reason::kStalled, NoProgress(job, stall)};
  // A program's ranks need not be seen waiting.
  const std::string others =
      stall.waiting == 0
          ? std::string(", and no rank that has joined goes on")
          : fmt::format(" while {} other rank{} for it", stall.waiting,
                        stall.waiting == 1 ? " waits" : "s wait");
  return {Reason::kStalled,
          fmt::format("{} has stalled in {} of step {} for {}{}; a step of "
                      "this job should end within {}",
                      RankLabel(job, stall.rank), stall.phase, stall.step,
                      FormatDuration(stall.still), others,
                      FormatDuration(stall.deadline))};
}

bool StallWatch::Page::UsesCpu() const {
  if (cpu.size() < 2) return false;
  const Duration window = cpu.back().time - cpu.front().time;
  return cpu.back().seconds - cpu.front().seconds > kIdle * ToSeconds(window);
}

bool StallWatch::Page::IsSilent() const {
  return silent_since.has_value() && progress.phase != "finished";
}

bool StallWatch::Page::IsBusy() const {
  return !IsSilent() && (progress.phase == "input" || UsesCpu());
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

void StallWatch::Restart(MonoTime now) {
  pages_.clear();
  announced_ = {};
  steps_.clear();
  if (stepped_) stepped_ = now;
}

void StallWatch::Take(const RankStatus& report, MonoTime now,
                      const std::optional<MonoTime>& changed) {
  const auto [it, first] = pages_.try_emplace(report.rank);
  Page& page = it->second;
  // The time between two distant reports is unknown.
  const bool gap = !first && now - page.reported > options_.fresh;
  if (first || gap || !SamePlace(page.progress, report.progress)) {
    // It changed between the two reports.
    page.since = first || gap || !changed
                     ? now
                     : std::clamp(*changed, std::min(page.reported, now), now);
    announced_ = {};
  }
  if (first || gap ||
      !SameWait(page.progress.collective_wait,
                report.progress.collective_wait)) {
    page.waits_since = now;
  }
  const auto& wait = report.progress.collective_wait;
  if (first || gap || !wait || wait->responsive) page.silent_since.reset();
  if (wait && !wait->responsive && !page.silent_since) page.silent_since = now;
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

std::optional<StallWatch::Standing> StallWatch::Standstill(const Ranks& ranks,
                                                           MonoTime now) const {
  Standing standing;
  const Duration deadline = Deadline();
  for (const auto& [rank, page] : pages_) {
    if (ranks.away.contains(rank)) continue;
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

StallWatch::Front StallWatch::FrontOf(const Standing& standing, MonoTime now) {
  Front front;
  front.step = -1;
  front.shortest = Duration::max();
  for (const auto& [rank, page] : standing) {
    front.step = std::max(front.step, page->progress.step);
    front.shortest = std::min(front.shortest, now - page->since);
  }
  for (const auto& [rank, page] : standing) {
    if (Waits(page->progress) && page->progress.step == front.step) {
      front.waiting.insert(rank);
    }
  }
  return front;
}

Stall StallWatch::StallOfAll(const Standing& standing,
                             const Front& front) const {
  const Duration deadline = Deadline();
  return {-1,
          "allreduce",
          front.step,
          front.shortest,
          deadline,
          std::max(
              {options_.all_least, options_.all_factor * deadline, announced_}),
          static_cast<int32_t>(standing.size())};
}

Stall StallWatch::StallOf(int32_t rank, const Page& page, const Front& front,
                          MonoTime now) const {
  const Duration deadline = Deadline();
  const Duration still = now - page.since;
  Duration limit = deadline;
  if (page.IsBusy()) {
    limit =
        std::max(options_.patient_least, options_.patient_factor * deadline);
  } else if (page.IsSilent()) {
    // Before, it may have been slow but healthy.
    const Duration silent = now - *page.silent_since + options_.silence;
    limit = std::max(limit, still - silent + deadline);
  }
  limit = std::max(limit, announced_);
  // All ranks must have stalled for the deadline.
  limit = std::max(limit, still - front.shortest + deadline);
  const size_t waiting =
      front.waiting.size() - (front.waiting.contains(rank) ? 1 : 0);
  return {
      rank,  page.progress.phase,          page.progress.step, still, deadline,
      limit, static_cast<int32_t>(waiting)};
}

std::optional<Stall> StallWatch::NearestToLimit(const Standing& standing,
                                                const std::set<int32_t>& ranks,
                                                const Front& front,
                                                MonoTime now) const {
  std::optional<Stall> found;
  for (const int32_t rank : ranks) {
    const Stall stall = StallOf(rank, *standing.at(rank), front, now);
    if (!found || stall.still - stall.limit > found->still - found->limit) {
      found = stall;
    }
  }
  return found;
}

// A rank that waits in an earlier step arrived there and never left it.
std::optional<Stall> StallWatch::StalledByPages(const Standing& standing,
                                                const Front& front,
                                                MonoTime now) const {
  if (front.waiting.size() == standing.size()) {
    return StallOfAll(standing, front);
  }
  std::set<int32_t> others;
  for (const auto& [rank, page] : standing) {
    if (!front.waiting.contains(rank)) others.insert(rank);
  }
  return NearestToLimit(standing, others, front, now);
}

std::optional<Stall> StallWatch::StalledByWaits(const Standing& standing,
                                                const Front& front,
                                                MonoTime now) const {
  const Duration deadline = Deadline();
  CollectiveWaits waits;
  // For how long all have said the same.
  Duration unchanged = Duration::max();
  for (const auto& [rank, page] : standing) {
    unchanged = std::min(unchanged, now - page->waits_since);
    waits[rank] = *page->progress.collective_wait;
  }
  // Before D nothing is told that would be too much once it is known which
  // process is stopped.
  const bool early = front.shortest <= deadline;
  if (unchanged > deadline / 2) {
    std::optional<Stall> found =
        NearestToLimit(standing, AwaitedRanks(waits), front, now);
    if (found && !(early && standing.at(found->rank)->IsBusy())) {
      CompleteNamed(waits, standing, front, &*found);
      return found;
    }
  }
  if (early) return std::nullopt;
  const bool all_wait =
      std::all_of(waits.begin(), waits.end(),
                  [](const auto& entry) { return IsWaiting(entry.second); });
  if (all_wait && unchanged > std::max(deadline / 2, options_.settling)) {
    return StallOfAll(standing, front);
  }
  if (front.shortest <= deadline + options_.settling) return std::nullopt;
  return StalledByPages(standing, front, now);
}

void StallWatch::CompleteNamed(const CollectiveWaits& waits,
                               const Standing& standing, const Front& front,
                               Stall* named) const {
  // Also those that wait in the step before.
  const auto waiting =
      std::count_if(waits.begin(), waits.end(), [&](const auto& entry) {
        return entry.first != named->rank && IsWaiting(entry.second);
      });
  named->waiting = std::max(named->waiting, static_cast<int32_t>(waiting));
  // It is not left longer than all together would be.
  if (front.waiting.size() == standing.size()) {
    named->limit =
        std::min(named->limit, named->still - front.shortest +
                                   StallOfAll(standing, front).limit);
  }
}

std::optional<StallWatch::Standing> StallWatch::StalledSpeakers(
    const Ranks& ranks, MonoTime now) const {
  SignSource best = SignSource::kNone;
  size_t known = ranks.ended.size();
  for (const auto& [rank, page] : pages_) {
    if (ranks.ended.contains(rank)) continue;
    // An older daemon, or a silent host: nothing is known.
    if (!page.progress.signs || now - page.reported > options_.fresh) {
      return std::nullopt;
    }
    ++known;
    best = std::max(best, page.progress.signs->source);
  }
  if (known != static_cast<size_t>(ranks.count)) return std::nullopt;
  Standing speakers;
  for (const auto& [rank, page] : pages_) {
    if (ranks.ended.contains(rank) || page.progress.signs->source != best) {
      continue;
    }
    if (IsDone(page.progress) || StillOf(page.progress, page.reported, now) <=
                                     page.progress.signs->limit) {
      return std::nullopt;
    }
    speakers[rank] = &page;
  }
  return speakers;
}

std::optional<Stall> StallWatch::StalledProgram(const Ranks& ranks,
                                                MonoTime now) const {
  const std::optional<Standing> speakers = StalledSpeakers(ranks, now);
  if (!speakers || speakers->empty()) return std::nullopt;
  // The one that is behind, or else is stopped, or else waits for no other, or
  // else does nothing, or else changed first.
  const auto blame = [now](const auto& entry) {
    const Page& page = *entry.second;
    return std::make_tuple(page.progress.step, !page.IsSilent(),
                           Waits(page.progress), page.UsesCpu(),
                           -StillOf(page.progress, page.reported, now));
  };
  const auto worst = std::min_element(
      speakers->begin(), speakers->end(),
      [&](const auto& a, const auto& b) { return blame(a) < blame(b); });
  const RankProgress& progress = worst->second->progress;
  Stall stall;
  stall.rank = worst->first;
  stall.source = progress.signs->source;
  if (stall.source == SignSource::kSession) stall.phase = progress.phase;
  stall.step = progress.step;
  stall.still = StillOf(progress, worst->second->reported, now);
  stall.deadline = stall.limit = progress.signs->limit;
  stall.log_step = progress.signs->log_step;
  stall.waiting = static_cast<int32_t>(
      std::count_if(speakers->begin(), speakers->end(), [&](const auto& entry) {
        return entry.first != worst->first && Waits(entry.second->progress);
      }));
  return stall;
}

std::optional<Stall> StallWatch::StalledRank(const Ranks& ranks,
                                             MonoTime now) const {
  if (kind_ == JobKind::kProgram) return StalledProgram(ranks, now);
  const int32_t members = ranks.count - static_cast<int32_t>(ranks.away.size());
  const std::optional<Standing> standing = Standstill(ranks, now);
  if (members < 2 || !standing ||
      standing->size() != static_cast<size_t>(members)) {
    return std::nullopt;
  }
  const Front front = FrontOf(*standing, now);
  if (front.waiting.empty()) return std::nullopt;
  // Where backends do not tell, the pages are in doubt only if all wait.
  const bool all_wait = front.waiting.size() == standing->size();
  const bool by_waits =
      std::all_of(standing->begin(), standing->end(), [&](const auto& entry) {
        const auto& wait = entry.second->progress.collective_wait;
        return wait && (all_wait || wait->waiting.has_value());
      });
  return by_waits ? StalledByWaits(*standing, front, now)
                  : StalledByPages(*standing, front, now);
}

std::optional<Stall> StallWatch::Check(const Ranks& ranks, MonoTime now) const {
  std::optional<Stall> stall = StalledRank(ranks, now);
  if (stall && stall->still <= stall->limit) stall.reset();
  return stall;
}

}  // namespace lockstep::server
