#include "server/core/elastic.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/replacing.h"
#include "server/core/restart_rules.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

// Later failures of a rank that is away follow each minute, and would displace
// all other history.
constexpr int32_t kNotedFailures = 3;

bool Runs(const RankStatus& rank) {
  return rank.state >= RankState::kStarted && !rank.exit;
}

// When a rank that is away and failed at `end` is started again. The first time
// at once.
bool IsDue(const LoneRank& lone, WallTime end, Time now) {
  return lone.failures_away == 0 ||
         now.wall - end >= Backoff(lone.failures_away);
}

void StartAgain(Job* job, const JobView& view, const TaskStatus& task,
                RankStatus* rank, Time now) {
  const LoneRank& lone = job->lone_ranks[rank->rank];
  if (!IsDue(lone, rank->exit->end_time, now)) return;
  const int32_t failures = lone.failures_away + 1;
  if (failures <= kNotedFailures) {
    const bool last = failures == kNotedFailures;
    AddEvent(
        job, FailureOfRank(*job, *rank).cause.reason,
        fmt::format("{}; it is started again while the others train{}",
                    FailureOfRank(*job, *rank).cause.message,
                    last ? ", and further failures of it are not noted" : ""),
        now);
  }
  RestartRank(job, view, task.node, rank, now);
  job->lone_ranks[rank->rank].failures_away = failures;
}

}  // namespace

std::vector<int32_t> AwayRanks(const Job& job) {
  std::vector<int32_t> away;
  for (const RankStatus* rank : RanksOf(job)) {
    if (rank->away) away.push_back(rank->rank);
  }
  return away;
}

bool AllAreAwayOn(const Job& job, const NodeName& node) {
  bool any = false;
  for (const TaskStatus& task : job.tasks) {
    if (task.node != node) continue;
    for (const RankStatus& rank : task.ranks) {
      if (!rank.away) return false;
      any = true;
    }
  }
  return any;
}

bool IsNotNeeded(const Job& job, const RankStatus& rank) {
  return rank.away || (rank.returned > 0 && rank.returned == job.recovery &&
                       rank.recovery < job.recovery);
}

const TaskStatus& ChiefTask(const Job& job) {
  const auto task = std::find_if(
      job.tasks.begin(), job.tasks.end(), [&](const TaskStatus& each) {
        return std::any_of(
            each.ranks.begin(), each.ranks.end(),
            [&](const RankStatus& rank) { return !IsNotNeeded(job, rank); });
      });
  return task == job.tasks.end() ? job.tasks.front() : *task;
}

const RankStatus& ChiefRank(const Job& job) {
  const std::vector<RankStatus>& ranks = ChiefTask(job).ranks;
  const auto chief = std::find_if(
      ranks.begin(), ranks.end(),
      [&](const RankStatus& rank) { return !IsNotNeeded(job, rank); });
  return chief == ranks.end() ? ranks.front() : *chief;
}

bool MayHaveChief(const Job& job, const NodeName& node) {
  // Whether the rank may have spoken before the newest recovery.
  bool spoke = true;
  const int32_t chief = ChiefRank(job).rank;
  for (const TaskStatus& task : job.tasks) {
    // Also where it ran before it moved.
    const bool here =
        task.node == node || std::count(task.former_nodes.begin(),
                                        task.former_nodes.end(), node) > 0;
    for (const RankStatus& rank : task.ranks) {
      const bool knows = rank.recovery >= job.recovery;
      const bool speaks = rank.rank == chief || rank.rank == 0;
      if (here && (speaks || (spoke && !knows))) return true;
      // The ranks so far were away, or have not joined since they returned.
      spoke = spoke && (rank.away ||
                        (rank.returned > 0 && rank.returned == job.recovery) ||
                        rank.returned > rank.recovery);
    }
  }
  return false;
}

bool IsReturn(const Job& job) {
  const auto ranks = RanksOf(job);
  return job.recovery > 0 &&
         std::any_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
           return rank->returned == job.recovery;
         });
}

bool HasLeftForNewest(const Job& job, const RankStatus& rank) {
  return rank.recovery >= job.recovery || rank.parked > rank.recovery;
}

bool MayTrainWithout(const Job& job, const std::set<int32_t>& lost,
                     const std::set<int32_t>& back) {
  if (job.spec.elastic_min_tasks == 0 || job.spec.rescale) return false;
  if (lost.contains(0) && job.spec.end_with != EndWith::kAll) return false;
  int32_t complete = 0;
  for (const TaskStatus& task : job.tasks) {
    bool all = true;
    for (const RankStatus& rank : task.ranks) {
      const bool away = rank.away && !back.contains(rank.rank);
      if (away || lost.contains(rank.rank)) {
        all = false;
      } else if (!Runs(rank) || !rank.elastic) {
        return false;
      }
    }
    if (all) ++complete;
  }
  return complete >= job.spec.elastic_min_tasks;
}

std::string HowToSaySo(const JobSpec& spec) {
  return spec.kind == JobKind::kNative
             ? "a native one says so with SessionOptions::elastic, "
               "lockstep-train "
               "with --elastic"
             : "lockstep.torch.Replica says so with elastic=True";
}

void NoteThatItCannot(Job* job, Time now) {
  if (job->spec.elastic_min_tasks == 0 || job->spec.rescale) return;
  std::set<int32_t> silent;
  for (const RankStatus* rank : RanksOf(*job)) {
    if (!rank->away && Runs(*rank) && !rank->elastic) silent.insert(rank->rank);
  }
  if (silent.empty()) return;
  AddEventOnce(
      job, Reason::kRecovering,
      fmt::format("the other ranks do not train on, as --elastic {} wants: the "
                  "program of {} has not said that it can; {}",
                  job->spec.elastic_min_tasks, RanksLabel(silent),
                  HowToSaySo(job->spec)),
      now);
}

void NoteThatItCould(Job* job, const std::set<int32_t>& lost, Time now) {
  if (job->spec.elastic_min_tasks > 0) return;
  if (lost.contains(0) && job->spec.end_with != EndWith::kAll) return;
  bool could = false;
  for (const RankStatus* rank : RanksOf(*job)) {
    if (!Runs(*rank)) continue;
    if (!rank->elastic) return;
    could = true;
  }
  if (!could) return;
  AddEventOnce(
      job, Reason::kRecovering,
      "the program can train on while ranks are away, and the job does "
      "not ask for that: submit it with --elastic MIN",
      now);
}

std::set<int32_t> Unreachable(const Job& job, const JobView& view) {
  const std::vector<NodeName> ready = ReadyToMove(job, view);
  std::set<int32_t> ranks;
  for (const TaskStatus& task : job.tasks) {
    if (!WaitsForNode(job, task.node) ||
        std::count(ready.begin(), ready.end(), task.node) > 0) {
      continue;
    }
    for (const RankStatus& rank : task.ranks) {
      if (!rank.away) ranks.insert(rank.rank);
    }
  }
  return ranks;
}

std::set<int32_t> ReadyToReturn(const Job& job, Time now) {
  std::set<int32_t> ready;
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& rank : task.ranks) {
      if (!rank.away || rank.exit || WaitsForNode(job, task.node)) continue;
      if (Runs(rank) && rank.parked > job.recovery) {
        ready.insert(rank.rank);
        continue;
      }
      const auto lone = job.lone_ranks.find(rank.rank);
      if (lone != job.lone_ranks.end() && lone->second.start &&
          now.wall - *lone->second.start < kReturnTogether) {
        return {};
      }
    }
  }
  return ready;
}

void RestartAwayRanks(Job* job, const JobView& view, Time now) {
  for (TaskStatus& task : job->tasks) {
    const auto node = view.nodes.find(task.node);
    if (WaitsForNode(*job, task.node) || HasBadGpu(task, view) ||
        (node != view.nodes.end() && node->second.cools)) {
      continue;
    }
    for (RankStatus& rank : task.ranks) {
      if (rank.away && rank.exit) {
        StartAgain(job, view, task, &rank, now);
      }
    }
  }
}

std::string SizeText(const Job& job) {
  const std::vector<int32_t> away = AwayRanks(job);
  if (away.empty()) return "";
  const size_t all = RanksOf(job).size();
  return fmt::format("{} of {} ranks train; {} {} away", all - away.size(), all,
                     RanksLabel({away.begin(), away.end()}),
                     away.size() == 1 ? "is" : "are");
}

}  // namespace lockstep::server
