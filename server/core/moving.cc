#include "server/core/moving.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/elastic.h"
#include "server/core/ending.h"
#include "server/core/job_places.h"
#include "server/core/job_roles.h"
#include "server/core/reports.h"

namespace lockstep::server {
namespace {

// The ranks of a program agree within a second or so, if it asks for orders.
constexpr Duration kAgreement = std::chrono::seconds(15);
// For the ranks that stop after the same step as the chief.
constexpr Duration kOthersStop = std::chrono::seconds(15);

// A program knows where it saves.
bool SavesOnRequest(const Job& job, const JobView& view) {
  const bool may = job.spec.kind == JobKind::kNative
                       ? !job.spec.output_directory.empty()
                       : NotJoined(job, view).empty();
  return may && job.next_directive <= kMaxDirective;
}

// Whether the ranks of a program, of which the chief spoke, have a step at
// which they stop.
bool HasAgreedToStop(const Job& job, const JobView& view) {
  const GangStatus* const gang =
      GangOf(view, ChiefTask(job).node, job.generation);
  return gang != nullptr &&
         std::any_of(job.directives.begin(), job.directives.end(),
                     [&](const Directive& directive) {
                       return directive.kind == DirectiveKind::kStop &&
                              directive.id <= gang->directive_done;
                     });
}

// `done_ones`: includes nodes whose ranks are done.
std::optional<Departure> FirstDeparture(const Job& job, const JobView& view,
                                        bool done_ones) {
  std::optional<Departure> first;
  // Created lazily, because drained nodes are rare.
  std::optional<JobPlaces> places;
  for (const NodeName& node : NodesOf(job)) {
    const auto it = view.nodes.find(node);
    if (it == view.nodes.end() || !it->second.drain) continue;
    if (AllAreAwayOn(job, node)) continue;
    if (!places) places.emplace(job);
    if (!done_ones && IsDoneOn(job, *places, node)) continue;
    const Drain& drain = *it->second.drain;
    const std::optional<WallTime> deadline = drain.deadline();
    if (!deadline || (first && first->deadline <= *deadline)) continue;
    first = Departure{node, fmt::format("node {} is {}", node, Describe(drain)),
                      *drain.grace, *deadline};
  }
  return first;
}

}  // namespace

std::optional<Departure> MustLeave(const Job& job, const JobView& view) {
  return FirstDeparture(job, view, /*done_ones=*/false);
}

bool IsAskedToStop(const Job& job) {
  return std::any_of(job.directives.begin(), job.directives.end(),
                     [](const Directive& directive) {
                       return directive.kind == DirectiveKind::kStop;
                     });
}

bool HasStoppedOnRequest(const Job& job, const JobView& view) {
  if (!IsAskedToStop(job)) return false;
  if (job.spec.kind != JobKind::kNative && !HasAgreedToStop(job, view)) {
    return false;
  }
  const RankStatus& chief = ChiefRank(job);
  if (!chief.exit || !chief.exit->ok()) return false;
  const RankProgress& progress = chief.progress;
  return progress.total_steps <= 0 ||
         progress.committed_step < progress.total_steps;
}

bool OthersStillStop(const Job& job, const JobView& view, Time now) {
  const bool all_ended = std::all_of(
      job.tasks.begin(), job.tasks.end(), [](const TaskStatus& task) {
        return !IsOfGroup(task.type) ||
               std::all_of(task.ranks.begin(), task.ranks.end(),
                           [](const RankStatus& rank) {
                             return rank.away ||
                                    rank.state == RankState::kExited;
                           });
      });
  if (all_ended) return false;
  const std::optional<Departure> departure =
      FirstDeparture(job, view, /*done_ones=*/true);
  return now.wall < ChiefRank(job).exit->end_time + kOthersStop &&
         (!departure || now.wall < departure->deadline);
}

std::vector<int32_t> NotJoined(const Job& job, const JobView& view) {
  std::vector<int32_t> missing;
  if (job.spec.kind == JobKind::kNative) return missing;
  for (const TaskStatus& task : job.tasks) {
    if (!IsOfGroup(task.type)) continue;
    const GangStatus* const gang = GangOf(view, task.node, job.generation);
    for (const RankStatus& rank : task.ranks) {
      if (rank.away) continue;
      // Only a process that has joined writes a phase on its page.
      const bool joined =
          gang != nullptr && rank.state != RankState::kExited &&
          std::any_of(gang->ranks.begin(), gang->ranks.end(),
                      [&](const RankStatus& said) {
                        return said.rank == rank.rank &&
                               !said.progress.phase.empty() &&
                               said.progress.phase != "finished";
                      });
      if (!joined) missing.push_back(rank.rank);
    }
  }
  return missing;
}

bool AskToStop(Job* job, const JobView& view) {
  if (!SavesOnRequest(*job, view)) return false;
  job->directives.push_back({job->next_directive++, DirectiveKind::kStop});
  return true;
}

bool DoesNotAgreeToStop(const Job& job, const JobView& view, WallTime since,
                        Time now) {
  return job.spec.kind != JobKind::kNative && now.wall >= since + kAgreement &&
         !HasAgreedToStop(job, view);
}

std::optional<Cause> Leave(Job* job, const JobView& view, Time now) {
  const std::optional<Departure> departure = MustLeave(*job, view);
  if (!departure) return std::nullopt;
  const bool asked = IsAskedToStop(*job);
  if (now.wall >= departure->deadline) {
    return Cause{Reason::kNodeDrained,
                 fmt::format("{}; its grace of {} has ended", departure->why,
                             FormatDuration(departure->grace))};
  }
  if (asked) {
    // A program that has joined may still not ask for orders.
    if (!DoesNotAgreeToStop(*job, view, departure->deadline - departure->grace,
                            now)) {
      return std::nullopt;
    }
    return Cause{
        Reason::kNodeDrained,
        departure->why + "; its ranks did not agree on a step to stop after"};
  }
  if (!AskToStop(job, view)) {
    return Cause{Reason::kNodeDrained, departure->why};
  }
  job->cause = {
      Reason::kNodeDrained,
      Shorten(fmt::format("{}; asked to save and to continue elsewhere",
                          departure->why))};
  AddEvent(job, Reason::kNodeDrained,
           fmt::format("{}, with a grace of {}", job->cause.message,
                       FormatDuration(departure->grace)),
           now);
  return std::nullopt;
}

bool SaveBeforeTheEnd(Job* job, const JobView& view, const Cause& cause,
                      Duration late, Time now) {
  constexpr Duration kToSave = std::chrono::seconds(30);
  if (job->spec.kind == JobKind::kNative || job->state != JobState::kRunning ||
      job->failing || late >= kToSave) {
    return false;
  }
  if (IsAskedToStop(*job)) {
    return late < kAgreement || HasAgreedToStop(*job, view);
  }
  if (!AskToStop(job, view)) return false;
  AddEvent(job, cause.reason,
           fmt::format("{}; asked to save and to stop within {}", cause.message,
                       FormatDuration(kToSave)),
           now);
  return true;
}

Cause MovedCause(const Job& job, const JobView& view) {
  const int64_t step = ChiefRank(job).progress.committed_step;
  const bool saved = job.last_checkpoint && job.last_checkpoint->step >= step;
  // Its ranks there may all have exited with 0, as ordered.
  const std::optional<Departure> departure =
      FirstDeparture(job, view, /*done_ones=*/true);
  std::string text = fmt::format("{} after step {}, as requested",
                                 saved ? "saved and stopped" : "stopped", step);
  if (!saved) {
    text += job.last_checkpoint
                ? fmt::format(" (its newest checkpoint is of step {})",
                              job.last_checkpoint->step)
                : " (it has no checkpoint)";
  }
  if (departure) text += ": " + departure->why;
  if (departure || !job.resize) {
    return {Reason::kNodeDrained, std::move(text)};
  }
  return {Reason::kResized, fmt::format("{}: {}", text, job.resize->why)};
}

}  // namespace lockstep::server
