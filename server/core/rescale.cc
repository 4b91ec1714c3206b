#include "server/core/rescale.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/core/held_back.h"
#include "server/core/host_fit.h"
#include "server/core/job_roles.h"
#include "server/core/moving.h"
#include "server/core/place_gang.h"
#include "server/core/recovery.h"

namespace lockstep::server {
namespace {

std::optional<std::vector<TaskPlacement>> PlaceAsOften(
    const Job& job, const JobSpec& spec,
    const std::vector<HostCapacity>& hosts) {
  auto placement = PlaceAgain(job, spec, hosts);
  if (!placement) placement = PlaceElsewhere(job, spec, hosts);
  size_t placed = 0;
  if (!placement) placement = PlaceAnew(spec, hosts, &placed);
  return placement;
}

// A job that can never fit wants no room.
bool Wants(const Job& queued, const Job& job,
           const std::vector<HostCapacity>& hosts) {
  const JobSpec& spec = queued.spec;
  const bool elsewhere = !spec.pool.empty() && !job.spec.pool.empty() &&
                         spec.pool != job.spec.pool;
  if (elsewhere || spec.priority < job.spec.priority) return false;
  size_t placed = 0;
  return PlaceAnew(OfSize(spec, LeastSize(spec)),
                   Emptied(HostsOfPool(spec.pool, hosts)), &placed)
      .has_value();
}

// A rank that has ended may be the first of all: the job may be at its end. An
// evaluator may end before.
bool AnyRankOfGroupEnded(const Job& job) {
  return std::any_of(job.tasks.begin(), job.tasks.end(),
                     [](const TaskStatus& task) {
                       return IsOfGroup(task.type) &&
                              std::any_of(task.ranks.begin(), task.ranks.end(),
                                          [](const RankStatus& rank) {
                                            return rank.exit.has_value();
                                          });
                     });
}

// The size that the job should change to now, and why.
std::optional<Resize> NextSize(const Job& job, const JobView& view, Time now) {
  const int32_t size = SizeOf(job);
  const int32_t wanted = WantedSize(job);
  const std::string ordered = job.resize ? job.resize->why : "";
  if (wanted < size) return Resize{wanted, ordered, std::nullopt};
  const int32_t room = view.room ? std::min(view.room->size, wanted) : 0;
  if (room <= size) return std::nullopt;
  const bool worth_it = view.room->since >= kRoomStays &&
                        now.wall - job.state_time >= kLongEnoughToGrow;
  if (!job.resize && !worth_it) return std::nullopt;
  std::string why = fmt::format("room for {} tasks", room);
  if (!ordered.empty()) why = fmt::format("{}, and there is {}", ordered, why);
  return Resize{room, std::move(why), std::nullopt};
}

std::optional<Cause> WhileItStops(const Job& job, const JobView& view,
                                  Time now) {
  const WallTime since = *job.resize->since;
  const char* late = nullptr;
  if (DoesNotAgreeToStop(job, view, since, now)) {
    late = "its ranks did not agree on a step to stop after";
  } else if (now.wall - since >= kLongestSave) {
    late = "its ranks did not stop in time";
  }
  if (late == nullptr) return std::nullopt;
  return Cause{Reason::kResized, fmt::format("{}: {}", job.resize->why, late)};
}

}  // namespace

int32_t SizeOf(const JobSpec& spec) {
  int32_t size = 0;
  for (const RoleSpec& role : spec.roles) {
    if (IsOfGroup(role.type)) size += role.count;
  }
  return size;
}

int32_t SizeOf(const Job& job) {
  return static_cast<int32_t>(std::count_if(
      job.tasks.begin(), job.tasks.end(),
      [](const TaskStatus& task) { return IsOfGroup(task.type); }));
}

int32_t WantedSize(const Job& job) {
  return job.spec.rescale && job.wanted_tasks > 0 ? job.wanted_tasks
                                                  : SizeOf(job.spec);
}

int32_t LeastSize(const JobSpec& spec) {
  return spec.rescale ? spec.elastic_min_tasks : SizeOf(spec);
}

JobSpec OfSize(const JobSpec& spec, int32_t size) {
  const int32_t fewer = SizeOf(spec) - size;
  JobSpec sized = spec;
  if (fewer <= 0) return sized;
  std::vector<RoleSpec>& roles = sized.roles.Edit();
  for (RoleSpec& role : roles) {
    if (role.type == TaskType::kWorker) role.count -= fewer;
  }
  std::erase_if(roles, [](const RoleSpec& role) { return role.count <= 0; });
  return sized;
}

int32_t LeastSizeNow(const Job& job, Duration waited) {
  const int32_t least = LeastSize(job.spec);
  if (job.generation == 0 || waited >= kFullSizePatience) return least;
  return std::max(least, std::min(SizeOf(job), WantedSize(job)));
}

std::optional<std::vector<TaskPlacement>> PlaceFewer(
    const Job& job, int32_t least, int32_t most,
    const std::vector<HostCapacity>& hosts) {
  // Where a gang fits, a smaller one does; if not always, then the placement is
  // valid and may be smaller than needed.
  std::optional<std::vector<TaskPlacement>> best;
  while (least <= most) {
    const int32_t size = least + (most - least + 1) / 2;
    auto placement = PlaceAsOften(job, OfSize(job.spec, size), hosts);
    if (placement) {
      best = std::move(placement);
      least = size + 1;
    } else {
      most = size - 1;
    }
  }
  return best;
}

bool WantsToGrow(const Job& job) {
  return job.spec.rescale && job.state == JobState::kRunning &&
         SizeOf(job) < WantedSize(job);
}

int32_t RoomFor(const Job& job, const std::vector<const Job*>& queue,
                std::vector<HostCapacity>* hosts) {
  for (const Job* queued : queue) {
    if (Wants(*queued, job, *hosts)) return 0;
  }
  std::vector<HostCapacity> without = *hosts;
  GiveBack(job.holds, &without);
  const auto placement = PlaceFewer(job, SizeOf(job) + 1, WantedSize(job),
                                    HostsOfPool(job.spec.pool, without));
  if (!placement) return 0;
  Occupy(job.spec, *placement, &without);
  *hosts = std::move(without);
  return static_cast<int32_t>(std::count_if(
      placement->begin(), placement->end(),
      [](const TaskPlacement& place) { return IsOfGroup(place.type); }));
}

std::optional<Cause> ChangeSize(Job* job, const JobView& view, Time now) {
  if (!job->spec.rescale) return std::nullopt;
  if (job->resize && job->resize->since) return WhileItStops(*job, view, now);
  if (IsAskedToStop(*job) || IsRecovering(*job) || !job->replacements.empty() ||
      AnyRankOfGroupEnded(*job)) {
    return std::nullopt;
  }
  std::optional<Resize> next = NextSize(*job, view, now);
  if (!next) return std::nullopt;
  const bool saves = AskToStop(job, view);
  const std::string text =
      fmt::format("{}: the job {}restarts with {} instead of {}", next->why,
                  saves ? "saves and " : "", next->tasks, SizeOf(*job));
  if (!saves) return Cause{Reason::kResized, text};
  next->since = now.wall;
  job->resize = *std::move(next);
  job->cause = {Reason::kResized, Shorten(text)};
  AddEvent(job, Reason::kResized, text, now);
  return std::nullopt;
}

StatusOr<Job> ResizeTo(const Job& before, int32_t size, const std::string& who,
                       Time now) {
  const JobSpec& spec = before.spec;
  if (IsFinal(before.state)) {
    return FailedPrecondition("job {} has ended", spec.name);
  }
  if (spec.elastic_min_tasks == 0) {
    return WithReason(
        FailedPrecondition(
            "job {} has a fixed size of {} tasks: one that is submitted with "
            "--elastic MIN can be resized",
            spec.name, SizeOf(spec)),
        "FIXED_SIZE");
  }
  if (size < spec.elastic_min_tasks || size > SizeOf(spec)) {
    return InvalidArgument(
        "tasks: job {} may have {} to {} tasks of chief and workers, not {}",
        spec.name, spec.elastic_min_tasks, SizeOf(spec), size);
  }
  if (!spec.rescale) LOCKSTEP_RETURN_IF_ERROR(CheckInPlace(before, size));
  Job job = before;
  job.wanted_tasks = size == SizeOf(spec) ? 0 : size;
  const std::string why =
      fmt::format("{} wants {} task{}", who, size, size == 1 ? "" : "s");
  AddEvent(&job, Reason::kResized, why, now);
  if (!spec.rescale) return job;  // held_back.h
  if (job.resize && job.resize->since) {
    job.resize->why = why;
    job.resize->tasks = size;
  } else if (IsActive(job.state) && SizeOf(job) != size) {
    job.resize = Resize{size, why, std::nullopt};
  } else {
    job.resize.reset();
  }
  return job;
}

}  // namespace lockstep::server
