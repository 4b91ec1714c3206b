#include "server/core/work_files.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::server {
namespace {

constexpr size_t kMaxNamedMoves = 5;
// The job is one record, so a wide job keeps fewer names.
constexpr size_t kWide = 50;
constexpr size_t kEntriesOfWide = 3;

bool Ran(const TaskStatus& task) {
  return std::any_of(
      task.ranks.begin(), task.ranks.end(), [](const RankStatus& rank) {
        return rank.state >= RankState::kStarted || rank.restarts > 0;
      });
}

const TaskStatus* Find(const std::vector<TaskStatus>& tasks, TaskType type,
                       int32_t index) {
  for (const TaskStatus& task : tasks) {
    if (task.type == type && task.index == index) return &task;
  }
  return nullptr;
}

// Returns its state after its last run in a stored, ended attempt, or null.
const TaskStatus* LastRun(const Job& job, TaskType type, int32_t index) {
  for (auto it = job.attempts.rbegin(); it != job.attempts.rend(); ++it) {
    const TaskStatus* task = Find(it->tasks, type, index);
    if (task != nullptr && Ran(*task)) return task;
  }
  return nullptr;
}

std::string ContentsOf(const TaskStatus& task) {
  if (!task.work) return "";
  return fmt::format(" ({}{} file{}, {})", task.work->truncated ? "over " : "",
                     task.work->files, task.work->files == 1 ? "" : "s",
                     FormatBytes(task.work->bytes));
}

}  // namespace

void TakeWork(Job* job, const std::vector<size_t>& tasks,
              const GangStatus& gang) {
  if (gang.phase != GangPhase::kStopped || gang.work.size() != tasks.size()) {
    return;
  }
  const size_t most =
      job->tasks.size() > kWide ? kEntriesOfWide : kMaxWorkEntries;
  for (size_t i = 0; i < tasks.size(); ++i) {
    std::optional<WorkDirectory>& work = job->tasks[tasks[i]].work;
    work = gang.work[i];
    if (work->entries.size() > most) work->entries.resize(most);
  }
}

void ShortenWork(std::vector<TaskStatus>* tasks) {
  for (TaskStatus& task : *tasks) {
    if (task.work) task.work->entries.clear();
  }
}

void NoteWorkLeftBehind(Job* job, Time now) {
  if (!job->spec.working_directory.empty()) return;
  size_t moved = 0;
  for (const TaskStatus& task : job->tasks) {
    const TaskStatus* before = LastRun(*job, task.type, task.index);
    if (before == nullptr || before->node == task.node) continue;
    if (before->work && before->work->files == 0 && !before->work->truncated) {
      continue;
    }
    if (++moved > kMaxNamedMoves) continue;
    AddEvent(job, Reason::kWorkLeftBehind,
             fmt::format("{} moved from node {} to {}: its working directory "
                         "stayed on {}{}",
                         TaskName(task.type, task.index), before->node,
                         task.node, before->node, ContentsOf(*before)),
             now);
  }
  if (moved > kMaxNamedMoves) {
    AddEvent(job, Reason::kWorkLeftBehind,
             fmt::format("{} other tasks moved, too, and left working "
                         "directories behind",
                         moved - kMaxNamedMoves),
             now);
  }
}

StatusOr<WorkSite> WorkSiteOf(const Job& job, int32_t rank) {
  const JobName& name = job.spec.name;
  if (!job.spec.working_directory.empty()) {
    return WithReason(
        FailedPrecondition("job {} sets its own working directory {}: "
                           "look there",
                           name, job.spec.working_directory),
        "OWN_WORKING_DIRECTORY");
  }
  const auto has = [&](const TaskStatus& task) {
    return std::any_of(
        task.ranks.begin(), task.ranks.end(),
        [&](const RankStatus& status) { return status.rank == rank; });
  };
  const auto task = std::find_if(job.tasks.begin(), job.tasks.end(), has);
  if (task == job.tasks.end()) {
    if (!job.tasks.empty()) {
      return NotFound("job {} has no rank {}", name, rank);
    }
    return WithReason(
        FailedPrecondition("job {} has not been started yet: it has no files",
                           name),
        "NOT_STARTED");
  }
  const TaskStatus* at = &*task;
  if (!Ran(*at)) at = LastRun(job, task->type, task->index);
  if (at == nullptr) {
    return WithReason(
        FailedPrecondition(
            "rank {} of job {} has not been started yet: it has no files", rank,
            name),
        "NOT_STARTED");
  }
  return WorkSite{at->type, at->index, at->node};
}

}  // namespace lockstep::server
