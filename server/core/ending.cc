#include "server/core/ending.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/core/clock_offset.h"
#include "server/core/elastic.h"
#include "server/core/job_roles.h"

namespace lockstep::server {
namespace {

// Further ranks are only counted, so that an event stays a sentence.
constexpr size_t kMaxNamedRanks = 8;

struct GroupRank {
  const TaskStatus* task = nullptr;
  const RankStatus* rank = nullptr;
};

template <typename Which>
std::vector<GroupRank> Members(const Job& job, const Which& which) {
  std::vector<GroupRank> members;
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& rank : task.ranks) {
      const GroupRank member{&task, &rank};
      if (which(member)) members.push_back(member);
    }
  }
  return members;
}

bool Runs(const GroupRank& member) {
  return member.rank->state != RankState::kExited;
}

bool ExitedWell(const RankStatus& rank) { return rank.exit && rank.exit->ok(); }

bool AllExitedWell(const TaskStatus& task) {
  return std::all_of(task.ranks.begin(), task.ranks.end(), ExitedWell);
}

// Ranks that are away are not waited for.
bool HasEnded(const Job& job, const TaskStatus& task) {
  return std::all_of(task.ranks.begin(), task.ranks.end(),
                     [&](const RankStatus& rank) {
                       return ExitedWell(rank) || IsNotNeeded(job, rank);
                     });
}

// "rank 1 (worker 0 on b), rank 2 (worker 1 on c)", each with its exit if
// `with_exit`.
std::string Named(const Job& job, const std::vector<GroupRank>& members,
                  bool with_exit) {
  std::vector<std::string> names;
  for (const GroupRank& member : members) {
    if (names.size() == kMaxNamedRanks) {
      names.push_back(fmt::format("{} more", members.size() - kMaxNamedRanks));
      break;
    }
    std::string name = RankLabel(job, member.rank->rank);
    if (with_exit) {
      // It was stopped because of this job's end.
      ExitStatus exit = *member.rank->exit;
      if (exit.victim) exit.message.clear();
      name += fmt::format(": {}", Describe(exit));
    }
    names.push_back(std::move(name));
  }
  return fmt::format("{}", fmt::join(names, with_exit ? "; " : ", "));
}

void Note(Job* job, Reason reason, const std::vector<GroupRank>& members,
          std::string_view what, bool with_exit, Time now) {
  if (members.empty()) return;
  AddEvent(job, reason,
           fmt::format("{}: {}", what, Named(*job, members, with_exit)), now);
}

}  // namespace

bool HasSucceeded(const Job& job) {
  if (job.tasks.empty()) return false;
  if (job.spec.end_with != EndWith::kAll) {
    return ExitedWell(DecidingRank(job)) && !FailureBeforeTheEnd(job);
  }
  return std::all_of(job.tasks.begin(), job.tasks.end(),
                     [&](const TaskStatus& task) {
                       return !IsOfGroup(task.type) || HasEnded(job, task);
                     });
}

std::optional<Failure> FailureBeforeTheEnd(const Job& job) {
  if (job.tasks.empty() || job.spec.end_with == EndWith::kAll ||
      !ExitedWell(DecidingRank(job))) {
    return std::nullopt;
  }
  const WallTime end = DecidingRank(job).exit->end_time;
  const auto failed = Members(job, [&](const GroupRank& member) {
    const auto& exit = member.rank->exit;
    return exit && !exit->ok() && !member.rank->away &&
           exit->end_time + kSameTime < end && !BlamesAPeer(*exit) &&
           !MayRestartAlone(job, *member.task);
  });
  const auto first = std::min_element(
      failed.begin(), failed.end(), [](const GroupRank& a, const GroupRank& b) {
        return a.rank->exit->end_time < b.rank->exit->end_time;
      });
  if (first == failed.end()) return std::nullopt;
  return FailureOfRank(job, *first->rank);
}

bool EndedBeforeItFailed(const Job& job) {
  if (!job.failing || job.state != JobState::kRunning || job.tasks.empty() ||
      job.spec.end_with == EndWith::kAll || !ExitedWell(DecidingRank(job)) ||
      !IsOfARank(job, *job.failing)) {
    return false;
  }
  const WallTime end = DecidingRank(job).exit->end_time;
  return Members(job,
                 [&](const GroupRank& member) {
                   const auto& exit = member.rank->exit;
                   return exit && !exit->ok() && !member.rank->away &&
                          exit->end_time < end;
                 })
      .empty();
}

bool IsDoneOn(const Job& job, const JobPlaces& places, const NodeName& node) {
  const std::vector<size_t>& tasks = places.TasksOn(node);
  return !tasks.empty() &&
         std::all_of(tasks.begin(), tasks.end(), [&](size_t index) {
           const TaskStatus& task = job.tasks[index];
           return IsOfGroup(task.type) && AllExitedWell(task);
         });
}

Duration GraceAfterSuccess(const JobSpec& spec) {
  if (spec.end_with == EndWith::kAll || HasParameterServers(spec)) return {};
  return spec.end_grace;
}

bool MayRunOn(const Job& job, Duration since, WallTime now) {
  const auto& limit = job.spec.max_running_time;
  return !job.cancel_requested && since < GraceAfterSuccess(job.spec) &&
         !(limit && job.start_time && now - *job.start_time > *limit);
}

void NoteStillRunning(Job* job, Time now) {
  const auto group = Members(*job, [](const GroupRank& member) {
    return Runs(member) && IsOfGroup(member.task->type);
  });
  const auto others = Members(*job, [](const GroupRank& member) {
    return Runs(member) && !IsOfGroup(member.task->type);
  });
  const Duration grace = GraceAfterSuccess(job->spec);
  Note(job, Reason::kRanksStopped, group,
       grace > Duration{}
           ? fmt::format("still running; stopped in {} unless they end",
                         FormatDuration(grace))
           : "still running; stopped now",
       false, now);
  Note(job, Reason::kRanksStopped, others, "still running; stopped now", false,
       now);
}

void NoteWaiting(Job* job, Time now) {
  constexpr Duration kPatience = std::chrono::minutes(1);
  if (job->spec.end_with != EndWith::kAll) return;
  const auto done = Members(*job, [&](const GroupRank& member) {
    return IsOfGroup(member.task->type) && ExitedWell(*member.rank) &&
           !member.rank->away &&
           now.wall - member.rank->exit->end_time >= kPatience;
  });
  if (done.empty()) return;
  const auto group = Members(*job, [](const GroupRank& member) {
    return Runs(member) && IsOfGroup(member.task->type);
  });
  AddEventOnce(
      job, Reason::kNoProgress,
      fmt::format("{} exited with 0 over a minute ago; the job ends when these "
                  "have: {}",
                  RankLabel(*job, done.front().rank->rank),
                  Named(*job, group, false)),
      now);
}

void NoteExits(Job* job, Time now) {
  const auto ended = [&](bool stopped) {
    return Members(*job, [&](const GroupRank& member) {
      return member.rank->exit && !member.rank->exit->ok() &&
             member.rank->exit->victim == stopped;
    });
  };
  Note(job, Reason::kRankFailedLate, ended(false),
       "failed after the job had succeeded; the job stays successful", true,
       now);
  Note(job, Reason::kRanksStopped, ended(true), "stopped", true, now);
}

void NoteGangRestart(Job* job, Time now) {
  const auto done = Members(*job, [](const GroupRank& member) {
    return IsOfGroup(member.task->type) && ExitedWell(*member.rank);
  });
  Note(job, Reason::kNone, done, "had exited with 0 and restart with the gang",
       false, now);
}

}  // namespace lockstep::server
