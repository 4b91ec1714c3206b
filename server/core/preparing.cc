#include "server/core/preparing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/model/output_identity.h"
#include "server/core/job_places.h"

namespace lockstep::server {
namespace {

constexpr size_t kMaxNamedTasks = 5;

bool HasPart(const TaskPreparation& preparation, std::string_view part) {
  return std::any_of(
      preparation.parts.begin(), preparation.parts.end(),
      [&](const TimedPart& timed) { return timed.part == part; });
}

Duration SpentIn(const TaskPreparation& preparation, std::string_view part) {
  for (const TimedPart& timed : preparation.parts) {
    if (timed.part == part) return timed.duration;
  }
  return {};
}

struct NodeTime {
  bool fetches = false;
  Duration fetched{};
  // It waits for rank 0's file, has waited, or will.
  bool shares = false;
};

NodeTime TimeOf(const Job& job, const std::vector<size_t>& tasks) {
  NodeTime time;
  for (const size_t index : tasks) {
    const TaskStatus& task = job.tasks[index];
    if (task.preparation.current == kFetchPart) time.fetches = true;
    if (HasPart(task.preparation, kOutputPart)) time.shares = true;
    // A node prepares all its tasks of the gang together.
    time.fetched =
        std::max(time.fetched, SpentIn(task.preparation, kFetchPart));
  }
  return time;
}

// "worker 0 on b (fetch: 34 of 200 MiB)".
std::string Label(const TaskStatus& task) {
  const TaskPreparation& preparation = task.preparation;
  std::string doing = preparation.current;
  if (doing.empty()) {
    doing = preparation.parts.empty()
                ? "no report"
                : "after " + preparation.parts.back().part;
  }
  if (!preparation.detail.empty()) doing += ": " + preparation.detail;
  return fmt::format("{} on {} ({})", TaskName(task.type, task.index),
                     task.node, Shorten(std::move(doing), 200));
}

bool SameButForTime(const TaskPreparation& a, const TaskPreparation& b) {
  if (a.current != b.current || a.parts.size() != b.parts.size()) return false;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    const Duration moved = b.parts[i].duration - a.parts[i].duration;
    const bool goes_on = a.parts[i].part == a.current;
    if (a.parts[i].part != b.parts[i].part) return false;
    if (goes_on ? moved >= std::chrono::seconds(1) : moved != Duration{}) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<Cause> LateToPrepare(const Job& job, const JobView& view,
                                   const std::vector<NodeName>& missing,
                                   const LifecycleTimeouts& timeouts,
                                   Time now) {
  const Duration elapsed = now.mono - view.state_since;
  if (elapsed <= timeouts.prepare) return std::nullopt;
  const JobPlaces places(job);
  std::vector<std::string> late;
  bool fetching = false;
  // Other nodes look for the file once rank 0's node has prepared.
  const Duration first_fetched =
      TimeOf(job, places.TasksOn(job.tasks.front().node)).fetched;
  for (const NodeName& node : missing) {
    const std::vector<size_t>& tasks = places.TasksOn(node);
    const NodeTime time = TimeOf(job, tasks);
    const bool shares = time.shares && !job.output_identity.empty() &&
                        node != job.tasks.front().node;
    const Duration fetched =
        shares ? std::max(time.fetched, first_fetched) : time.fetched;
    // A node with an invented hour of "fetch" does not delay the gang.
    const bool over =
        time.fetches
            ? elapsed > timeouts.fetch
            : elapsed > timeouts.prepare + std::min(fetched, timeouts.fetch) +
                            (shares ? timeouts.share : Duration{});
    if (!over) continue;
    fetching = fetching || time.fetches;
    for (const size_t task : tasks) {
      if (late.size() <= kMaxNamedTasks) late.push_back(Label(job.tasks[task]));
    }
  }
  if (late.empty()) return std::nullopt;
  if (late.size() > kMaxNamedTasks) {
    late.resize(kMaxNamedTasks);
    late.push_back("...");
  }
  return Cause{
      Reason::kPrepareTimeout,
      fmt::format("{} after {}: {}", fetching ? "not fetched" : "not prepared",
                  FormatDuration(fetching ? timeouts.fetch : timeouts.prepare),
                  fmt::join(late, ", "))};
}

void SettleOutputIdentity(Job* job, const GangStatus& gang,
                          const NodeName& node) {
  if (!job->output_identity.empty() || job->spec.output_directory.empty() ||
      node != job->tasks.front().node ||
      !IsOutputIdentity(gang.output_identity)) {
    return;
  }
  job->output_identity = gang.output_identity;
}

bool SeesOutput(const Job& job, const GangStatus& gang) {
  if (job.output_identity.empty() ||
      gang.output_identity == job.output_identity) {
    return true;
  }
  return std::none_of(gang.preparations.begin(), gang.preparations.end(),
                      [](const TaskPreparation& preparation) {
                        return HasPart(preparation, kOutputPart);
                      });
}

Cause RefusalBy(const Job& job, const NodeName& node, Cause refusal) {
  const NodeName& first = job.tasks.front().node;
  refusal.message = fmt::format("node {}: {}", node, refusal.message);
  if (refusal.reason == Reason::kOutputNotShared && node != first) {
    refusal.message += fmt::format(" (rank 0 is on node {})", first);
  }
  return refusal;
}

void TakePreparations(Job* job, const std::vector<size_t>& tasks,
                      const GangStatus& gang) {
  auto report = gang.preparations.begin();
  for (const size_t index : tasks) {
    TaskStatus& task = job->tasks[index];
    if (report == gang.preparations.end()) return;
    if (!SameButForTime(task.preparation, *report)) {
      task.preparation = *report;
      task.preparation.detail =
          Shorten(std::move(task.preparation.detail), 500);
    }
    ++report;
  }
}

}  // namespace lockstep::server
