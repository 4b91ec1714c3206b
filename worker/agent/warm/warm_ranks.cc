#include "worker/agent/warm/warm_ranks.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "worker/agent/core/printable_text.h"
#include "worker/agent/host/stray_processes.h"

namespace lockstep::worker::agent {
namespace {

// After the last start of a rank here.
constexpr Duration kSettle = std::chrono::seconds(3);
// How long an interpreter may import.
constexpr Duration kReadyTime = std::chrono::minutes(5);
// How long interpreters outlive the job's last gang here: the next generation
// of a gang that restarts is on its way.
constexpr Duration kKeep = std::chrono::seconds(5);
constexpr Duration kFirstWait = std::chrono::seconds(10);
constexpr Duration kLongestWait = std::chrono::minutes(10);

// Whether ranks of the gang may start here again, or for the first time on a
// spare node.
bool MayStartRanks(const LocalGang& gang) {
  const Assignment& assignment = gang.assignment;
  return assignment.spec && assignment.spec->warm_starts &&
         assignment.cluster && assignment.goal < Goal::kStop &&
         (gang.status.phase == GangPhase::kPrepared ||
          gang.status.phase == GangPhase::kLaunched);
}

void TakeMark(const task::ShimSpec& from, task::ShimSpec* to) {
  const std::string prefix = fmt::format("{}=", kTaskVariable);
  const auto is_mark = [&](const std::string& variable) {
    return variable.starts_with(prefix);
  };
  const auto mark = std::find_if(from.env.begin(), from.env.end(), is_mark);
  if (mark == from.env.end()) return;
  std::erase_if(to->env, is_mark);
  to->env.push_back(*mark);
}

}  // namespace

WarmRanks::~WarmRanks() {
  RemoveIf([](const Waiting&) { return true; });
}

std::string WarmRanks::NoteOf(const std::string& id) const {
  return JoinPath(parts_.dir, id);
}

void WarmRanks::Clear() {
  const auto names = parts_.files->List(parts_.dir);
  if (!names.ok()) return;  // It does not exist: there are none.
  for (const std::string& id : *names) {
    parts_.cgroups->Drop(id);
    (void)parts_.files->Remove(NoteOf(id));
  }
}

std::optional<shim::WarmShim> WarmRanks::Take(const std::string& job_uid,
                                              WarmSample* rank) {
  const auto found = std::find_if(
      waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
        return waiting.ready && waiting.job_uid == job_uid &&
               MayBecome(waiting.sample, *rank);
      });
  if (found == waiting_.end()) return std::nullopt;
  const task::ShimSpec& has = found->sample.spec;
  rank->spec.socket_path = has.socket_path;
  rank->spec.cgroup = has.cgroup;
  TakeMark(has, &rank->spec);
  // From here on the rank's records know the cgroup.
  (void)parts_.files->Remove(NoteOf(TaskIdOf(has.socket_path)));
  shim::WarmShim warm = std::move(found->warm);
  waiting_.erase(found);
  ++starts_;
  if (const auto job = jobs_.find(job_uid); job != jobs_.end()) {
    job->second.failures = 0;
  }
  return warm;
}

void WarmRanks::NoteStart(const std::string& job_uid) {
  const auto job = jobs_.find(job_uid);
  if (job != jobs_.end()) job->second.last_start = parts_.loop->Now().mono;
}

int64_t WarmRanks::ready() const {
  return std::count_if(waiting_.begin(), waiting_.end(),
                       [](const Waiting& waiting) { return waiting.ready; });
}

size_t WarmRanks::CountOf(const std::string& uid) const {
  return static_cast<size_t>(std::count_if(
      waiting_.begin(), waiting_.end(),
      [&](const Waiting& waiting) { return waiting.job_uid == uid; }));
}

void WarmRanks::Tick() {
  const MonoTime now = parts_.loop->Now().mono;
  Look(now);
  CollectWanted(now);
  for (auto& [uid, job] : jobs_) Choose(uid, &job, now);
}

void WarmRanks::CollectWanted(MonoTime now) {
  for (auto& [uid, job] : jobs_) {
    job.wanted.clear();
    job.is_cold = false;
  }
  for (const auto& [key, gang] : parts_.core->core().gangs()) {
    const std::string& uid = gang.assignment.job_uid;
    auto at = jobs_.find(uid);
    if (MayStartRanks(gang)) {
      const bool is_new = at == jobs_.end();
      if (is_new) at = jobs_.try_emplace(uid).first;
      Job& job = at->second;
      // Its ranks may just have started.
      const bool spare = gang.status.phase == GangPhase::kPrepared;
      if (is_new && !spare) job.last_start = now;
      if (spare) job.last_start = now - kSettle;
      job.wanted.clear();  // Those of the newest generation.
      for (const RankStatus& rank : gang.status.ranks) {
        job.wanted.push_back({key, rank.rank});
      }
    }
    if (at == jobs_.end()) continue;
    at->second.seen = now;
    at->second.is_cold = gang.status.phase == GangPhase::kLaunched &&
                         gang.assignment.spec &&
                         !gang.assignment.spec->warm_starts;
  }
  std::erase_if(jobs_, [&](const auto& entry) {
    return now - entry.second.seen > kKeep;
  });
  RemoveIf([&](const Waiting& waiting) {
    const auto job = jobs_.find(waiting.job_uid);
    return job == jobs_.end() || job->second.is_cold;
  });
}

void WarmRanks::Choose(const std::string& uid, Job* job, MonoTime now) {
  const bool is_chosen = job->wanted == job->chosen_for &&
                         CountOf(uid) == job->chosen &&
                         (!job->ask_again || now < *job->ask_again);
  if (job->wanted.empty() || now < job->not_before ||
      now - job->last_start < kSettle || is_chosen) {
    return;
  }
  job->ask_again.reset();
  std::vector<const Waiting*> used;
  std::vector<WarmSample> missing;
  for (const RankRef& ref : job->wanted) {
    StatusOr<WarmSample> sample = SampleOf(ref);
    if (!sample.ok()) {
      LOG_INFO("{}: it cannot start warm: {}", Describe(ref),
               Message(sample.status()));
      job->ask_again = now + kLongestWait;
      continue;
    }
    const auto fits =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
          return w.job_uid == uid && MayBecome(w.sample, *sample) &&
                 std::count(used.begin(), used.end(), &w) == 0;
        });
    if (fits == waiting_.end()) {
      missing.push_back(*std::move(sample));
    } else {
      used.push_back(&*fits);
    }
  }
  RemoveIf([&](const Waiting& waiting) {
    return waiting.job_uid == uid &&
           std::count(used.begin(), used.end(), &waiting) == 0;
  });
  job->chosen_for = job->wanted;
  job->chosen = used.size() + missing.size();
  for (WarmSample& sample : missing) {
    const Status started = Start(uid, std::move(sample), now);
    if (started.ok()) continue;
    LOG_WARN("{}: it cannot start warm: {}", Describe(job->wanted.front()),
             Message(started));
    job->not_before = now + kLongestWait;
    return;
  }
}

StatusOr<WarmSample> WarmRanks::SampleOf(const RankRef& ref) const {
  LOCKSTEP_ASSIGN_OR_RETURN(WarmSample sample, parts_.sample(ref));
  if (task::ShimSpec spec = sample.spec; !MakeWarm(&spec)) {
    return FailedPrecondition(
        "only scripts and modules that Python runs can, outside containers");
  }
  return sample;
}

Status WarmRanks::Start(const std::string& uid, WarmSample sample,
                        MonoTime now) {
  task::ShimSpec spec = sample.spec;
  if (!MakeWarm(&spec)) return FailedPrecondition("it is no Python program");
  const std::string id = TaskIdOf(sample.spec.socket_path);
  if (parts_.cgroups->enabled()) {
    // First, for the next daemon.
    LOCKSTEP_RETURN_IF_ERROR(parts_.files->MakeDirs(parts_.dir, 0700));
    LOCKSTEP_RETURN_IF_ERROR(parts_.files->Create(NoteOf(id)).status());
    auto cgroup = parts_.cgroups->Make(id, sample.share);
    if (!cgroup.ok()) {
      (void)parts_.files->Remove(NoteOf(id));
      return cgroup.status();
    }
    spec.cgroup = sample.spec.cgroup = *std::move(cgroup);
  }
  auto warm = shim::StartWarmShim(parts_.shim_program, spec);
  if (!warm.ok()) {
    parts_.cgroups->Drop(id);
    (void)parts_.files->Remove(NoteOf(id));
    return warm.status();
  }
  waiting_.push_back({uid, std::move(sample), *std::move(warm), false, now});
  return OkStatus();
}

void WarmRanks::Look(MonoTime now) {
  RemoveIf([&](Waiting& waiting) {
    const auto words = shim::TakeWords(waiting.warm);
    if (words.ok() && *words) {
      waiting.ready = true;
      LOG_INFO("job {}: an interpreter is ready for a warm start: {}",
               waiting.sample.spec.job,
               PrintableText(**words, kMaxReportedText));
    }
    const bool late = !waiting.ready && now - waiting.since > kReadyTime;
    if (words.ok() && !late) return false;
    Fail(waiting.job_uid, now);
    LOG_WARN("job {}: an interpreter for a warm start is given up: {}",
             waiting.sample.spec.job,
             late ? "it has not imported everything in time" : "it has ended");
    return true;
  });
}

void WarmRanks::Fail(const std::string& uid, MonoTime now) {
  ++failures_;
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return;
  const int doublings = std::min(job->second.failures++, 10);
  job->second.not_before =
      now + std::min(kFirstWait * (int64_t{1} << doublings), kLongestWait);
}

void WarmRanks::RemoveIf(const std::function<bool(Waiting&)>& matches) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto current = it++;
    if (!matches(*current)) continue;
    // Its interpreter ends with it. The orphan reaper takes what is left.
    (void)SendSignal(current->warm.shim, SIGKILL);
    (void)WaitExit(current->warm.shim, parts_.loop->Now().mono);
    const std::string id = TaskIdOf(current->sample.spec.socket_path);
    parts_.cgroups->Drop(id);
    (void)parts_.files->Remove(NoteOf(id));
    waiting_.erase(current);
  }
}

}  // namespace lockstep::worker::agent
