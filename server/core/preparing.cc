#include "server/core/preparing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/core/job_places.h"

namespace lockstep {
namespace {

constexpr size_t kMaxNamed = 5;

Duration SpentIn(const TaskPreparation& preparation, std::string_view part) {
  for (const TimedPart& timed : preparation.parts) {
    if (timed.part == part) return timed.duration;
  }
  return {};
}

struct NodeTime {
  bool fetches = false;
  Duration fetched{};
};

NodeTime TimeOf(const Job& job, const std::vector<size_t>& tasks) {
  NodeTime time;
  for (const size_t index : tasks) {
    const TaskStatus& task = job.tasks[index];
    if (task.preparation.current == kFetchPart) time.fetches = true;
    // A node gets all its tasks of the gang ready together.
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
                ? "no news"
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
  for (const NodeName& node : missing) {
    const std::vector<size_t>& tasks = places.TasksOn(node);
    const NodeTime time = TimeOf(job, tasks);
    // An hour of "fetch" that a node makes up does not keep the gang waiting.
    const bool over =
        time.fetches ? elapsed > timeouts.fetch
                     : elapsed > timeouts.prepare +
                                     std::min(time.fetched, timeouts.fetch);
    if (!over) continue;
    fetching = fetching || time.fetches;
    for (const size_t task : tasks) {
      if (late.size() <= kMaxNamed) late.push_back(Label(job.tasks[task]));
    }
  }
  if (late.empty()) return std::nullopt;
  if (late.size() > kMaxNamed) {
    late.resize(kMaxNamed);
    late.push_back("...");
  }
  return Cause{
      Reason::kPrepareTimeout,
      fmt::format("{} after {}: {}", fetching ? "not fetched" : "not prepared",
                  FormatDuration(fetching ? timeouts.fetch : timeouts.prepare),
                  fmt::join(late, ", "))};
}

void TakePreparations(Job* job, const std::vector<size_t>& tasks,
                      const GangStatus& gang) {
  auto said = gang.preparations.begin();
  for (const size_t index : tasks) {
    TaskStatus& task = job->tasks[index];
    if (said == gang.preparations.end()) return;
    if (!SameButForTime(task.preparation, *said)) {
      task.preparation = *said;
      task.preparation.detail =
          Shorten(std::move(task.preparation.detail), 500);
    }
    ++said;
  }
}

}  // namespace lockstep
