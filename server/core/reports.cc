#include "server/core/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/model/reduction_plan.h"
#include "server/core/bill.h"
#include "server/core/elastic.h"
#include "server/core/images.h"
#include "server/core/job_places.h"
#include "server/core/preparing.h"
#include "server/core/work_files.h"

namespace lockstep::server {
namespace {

// Converts to the coordinator's clock. An exit precedes its report.
WallTime EndTime(WallTime reported, Duration offset, Time now) {
  constexpr Duration kFar = std::chrono::hours(24 * 365 * 100);
  if (reported <= WallTime{} || reported - WallTime{} > kFar) return now.wall;
  return std::min(now.wall, reported + offset);
}

void TakeRank(const Job& job, const RankStatus& report, Duration offset,
              RankStatus* known, Time now) {
  // The report is about an earlier process of the rank.
  if (report.restarts < known->restarts) return;
  if (report.state > known->state) known->state = report.state;
  if (report.pid != 0) known->pid = report.pid;
  known->recoverable = known->recoverable || report.recoverable;
  known->elastic = known->elastic || report.elastic;
  known->recovery = std::max(known->recovery, report.recovery);
  known->parked = std::max(known->parked, report.parked);
  if (report.exit && !known->exit) {
    known->exit = report.exit;
    known->exit->end_time = EndTime(report.exit->end_time, offset, now);
    known->state = RankState::kExited;
    // The counters are final and become durable here.
    known->progress = report.progress;
    known->usage = UsageOf(job, report);
  }
}

// Adds the first, then at most one per minute. Only the newest few stay, so
// that they do not displace other events.
void AddCheckpointEvent(Job* job, const Checkpoint& checkpoint, Time now) {
  constexpr ptrdiff_t kKept = 10;
  const auto is_one = [](const Event& event) {
    return event.reason == Reason::kCheckpointSaved;
  };
  const auto last =
      std::find_if(job->events.rbegin(), job->events.rend(), is_one);
  if (last != job->events.rend() &&
      now.wall - last->time < std::chrono::minutes(1)) {
    return;
  }
  if (std::count_if(job->events.begin(), job->events.end(), is_one) >= kKept) {
    const auto first =
        std::find_if(job->events.begin(), job->events.end(), is_one);
    job->events.erase(std::find_if(first + 1, job->events.end(), is_one));
  }
  AddEvent(job, Reason::kCheckpointSaved,
           fmt::format("checkpoint of step {} saved", checkpoint.step), now);
}

// The chief's host reports published checkpoints, and that of a former chief. A
// checkpoint of another generation is ignored.
void TakeCheckpoint(Job* job, const GangStatus& gang, Time now) {
  if (!gang.checkpoint || gang.checkpoint->generation != gang.generation) {
    return;
  }
  const auto age = [](const Checkpoint& checkpoint) {
    return std::make_pair(checkpoint.generation, checkpoint.step);
  };
  if (job->last_checkpoint &&
      age(*gang.checkpoint) <= age(*job->last_checkpoint)) {
    return;
  }
  job->last_checkpoint = gang.checkpoint;
  if (job->last_checkpoint->time == WallTime{}) {
    job->last_checkpoint->time = now.wall;
  }
  job->committed_step =
      std::max(job->committed_step.value_or(-1), gang.checkpoint->step);
  AddCheckpointEvent(job, *gang.checkpoint, now);
  job->restore.reset();
  if (job->state == JobState::kRunning && !job->failing &&
      job->cause.reason == Reason::kOutputFull) {
    job->cause = {Reason::kRunning, ""};
  }
}

// Only rank 0's host reports the plan: a generation begins with all ranks, and
// an elastic one's plan does not change. The next generation gets it, so it
// must be valid.
Status TakeReductionPlan(Job* job, const GangStatus& gang,
                         const NodeName& node) {
  if (gang.reduction_plan.empty() ||
      gang.reduction_plan == job->reduction_plan ||
      job->spec.kind != JobKind::kNative || job->tasks.empty() ||
      node != job->tasks.front().node) {
    return OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const ReductionPlan plan,
                            ParseReductionPlan(gang.reduction_plan));
  if (static_cast<size_t>(plan.ranks) != RanksOf(*job).size()) {
    return InvalidArgument("it has {} ranks, but the job has {}", plan.ranks,
                           RanksOf(*job).size());
  }
  job->reduction_plan = gang.reduction_plan;
  return OkStatus();
}

void TakeEvents(Job* job, const GangStatus& gang, const NodeName& node,
                Time now) {
  if (gang.events.empty()) return;
  uint32_t& seen = job->event_numbers[node];
  for (const RankEvent& event : gang.events) {
    if (event.number <= seen) continue;
    seen = event.number;
    AddEvent(job, event.reason,
             fmt::format("{}: {}", RankLabel(*job, event.rank), event.message),
             now);
    // Valid until the next checkpoint.
    if (event.reason == Reason::kOutputFull &&
        job->spec.kind == JobKind::kNative &&
        job->state == JobState::kRunning && !job->failing) {
      job->cause = {Reason::kOutputFull, job->events.back().message};
    }
  }
}

void TakeReport(Job* job, const std::vector<size_t>& tasks,
                const GangStatus& gang, const NodeName& node, Duration offset,
                Time now) {
  TakePreparations(job, tasks, gang);
  SettleImages(job, gang.images, node, now);
  SettleOutputIdentity(job, gang, node);
  for (const size_t task : tasks) {
    for (RankStatus& rank : job->tasks[task].ranks) {
      for (const RankStatus& report : gang.ranks) {
        if (report.rank == rank.rank)
          TakeRank(*job, report, offset, &rank, now);
      }
    }
  }
  TakeCheckpoint(job, gang, now);
  if (const Status plan = TakeReductionPlan(job, gang, node); !plan.ok()) {
    AddEventOnce(job, Reason::kNone,
                 fmt::format("node {} sent an unusable reduction plan: "
                             "{}",
                             node, Message(plan)),
                 now);
  }
  for (const auto& [name, path] : gang.artifacts) {
    if (job->artifacts.size() < kMaxArtifactsOfJob ||
        job->artifacts.contains(name)) {
      job->artifacts[name] = path;
    }
  }
  // From the chief's node after all its ranks ended.
  if (gang.phase == GangPhase::kStopped && !gang.outputs.empty() &&
      node == ChiefTask(*job).node) {
    job->outputs = gang.outputs;
    if (job->outputs.size() > kMaxOutputsOfJob) {
      job->outputs.resize(kMaxOutputsOfJob);
    }
  }
  TakeWork(job, tasks, gang);
  if (gang.resumed_step && !job->lineage.empty() &&
      job->lineage.back().generation == gang.generation) {
    job->lineage.back().start_step = std::max<int64_t>(0, *gang.resumed_step);
  }
  std::erase_if(job->directives, [&](const Directive& directive) {
    // A stop is done when the ranks have ended.
    return directive.kind != DirectiveKind::kStop &&
           directive.id <= gang.directive_done;
  });
  TakeEvents(job, gang, node, now);
}

// A node whose gang is gone holds no resources. A node that does not know the
// gang acknowledges STOP, too.
void ReleaseEndedHolds(Job* job, const JobPlaces& places, const JobView& view,
                       Time now) {
  const auto gone = [&](const Hold& hold) {
    if (IsLost(view, hold.node)) return true;
    const GangStatus* gang = GangOf(view, hold.node, hold.generation);
    if (gang == nullptr) return false;
    const bool restarts = hold.generation == job->generation &&
                          view.nodes.at(hold.node).restarting;
    return gang->phase == GangPhase::kRefused ||
           (gang->phase == GangPhase::kStopped && !restarts);
  };
  // A failed generation keeps its holds until it is gone everywhere, because
  // its successor may use the same places.
  const bool all_gone = std::all_of(job->holds.begin(), job->holds.end(), gone);
  std::map<NodeName, Release> over;
  for (const Hold& hold : job->holds) {
    // A node whose tasks have moved (replacing.h) is needed no more.
    const bool wanted = hold.generation == job->generation && !job->outcome &&
                        HasPartIn(*job, places, hold.node) &&
                        !(job->failing && all_gone && !view.testing_pairs);
    if (wanted || !gone(hold)) continue;
    Release& release = over[hold.node];
    release.generation = std::max(release.generation, hold.generation);
    // What it did afterwards is unknown, and not to be paid.
    const auto node = view.nodes.find(hold.node);
    release.until = IsLost(view, hold.node) && !node->second.forgotten
                        ? node->second.last_sign
                        : now.wall;
  }
  if (!over.empty()) ReleaseHolds(job, over);
}

}  // namespace

const GangStatus* GangOf(const JobView& view, const NodeName& node,
                         Generation generation) {
  const auto it = view.nodes.find(node);
  if (it == view.nodes.end()) return nullptr;
  const auto gang = it->second.gangs.find(generation);
  return gang == it->second.gangs.end() ? nullptr : &gang->second;
}

bool IsLost(const JobView& view, const NodeName& node) {
  const auto it = view.nodes.find(node);
  return it != view.nodes.end() && it->second.state == NodeState::kLost;
}

std::optional<Cause> LossOf(const JobView& view, const NodeName& node,
                            Generation generation, bool launched) {
  if (IsLost(view, node)) {
    if (view.nodes.at(node).forgotten) {
      return Cause{Reason::kNodeForgotten,
                   fmt::format("an operator declared node {} gone", node)};
    }
    return Cause{Reason::kNodeLost, fmt::format("node {} is lost", node)};
  }
  if (launched && HasNoReport(view, node, generation)) {
    return Cause{Reason::kNodeLost,
                 fmt::format("node {} returned without the job's ranks", node)};
  }
  return std::nullopt;
}

bool HasNoReport(const JobView& view, const NodeName& node,
                 Generation generation) {
  const auto it = view.nodes.find(node);
  return it != view.nodes.end() && it->second.reported &&
         it->second.state == NodeState::kReady &&
         !it->second.gangs.contains(generation);
}

void TakeReports(Job* job, const JobView& view, Time now) {
  const JobPlaces places(*job);
  for (const NodeName& node : NodesOf(*job)) {
    if (const GangStatus* gang = GangOf(view, node, job->generation)) {
      TakeReport(job, places.TasksOn(node), *gang, node,
                 view.nodes.at(node).clock_offset, now);
    }
  }
  for (Hold& hold : job->holds) {
    const GangStatus* gang = GangOf(view, hold.node, hold.generation);
    if (gang != nullptr && gang->fence) hold.fence = gang->fence;
  }
  ReleaseEndedHolds(job, places, view, now);
}

int64_t HighestCommitted(const Job& job, const JobView& view) {
  int64_t highest = -1;
  for (const RankStatus* rank : RanksOf(job)) {
    highest = std::max(highest, rank->progress.committed_step);
  }
  for (const NodeName& node : NodesOf(job)) {
    const GangStatus* gang = GangOf(view, node, job.generation);
    if (gang == nullptr) continue;
    for (const RankStatus& rank : gang->ranks) {
      highest = std::max(highest, rank.progress.committed_step);
    }
  }
  return highest;
}

}  // namespace lockstep::server
