#include "worker/agent/warm/warm_ranks.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "worker/agent/core/printable_text.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/agent/warm/warm_spec.h"

namespace lockstep::worker::agent {
namespace {

// After the last start of a rank here, which imports by itself.
constexpr Duration kSettle = std::chrono::seconds(3);
// How long an interpreter may import.
constexpr Duration kReadyTime = std::chrono::minutes(5);
// How long the interpreters of a job stay that has no gang here.
constexpr Duration kKeep = std::chrono::minutes(1);
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
  while (!waiting_.empty()) Remove(waiting_.begin());
}

std::optional<shim::WarmShim> WarmRanks::Take(const std::string& job_uid,
                                              task::ShimSpec* spec) {
  const auto found = std::find_if(
      waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
        return waiting.ready && waiting.job_uid == job_uid &&
               MayBecome(waiting.sample, *spec);
      });
  if (found == waiting_.end()) return std::nullopt;
  spec->socket_path = found->sample.socket_path;
  spec->cgroup = found->sample.cgroup;
  TakeMark(found->sample, spec);
  shim::WarmShim warm = std::move(found->warm);
  waiting_.erase(found);
  ++starts_;
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

void WarmRanks::Tick() {
  const MonoTime now = parts_.loop->Now().mono;
  Look(now);
  CollectWanted(now);
  for (auto& [uid, job] : jobs_) StartMissing(uid, &job, now);
  Tell();
}

void WarmRanks::CollectWanted(MonoTime now) {
  for (auto& [uid, job] : jobs_) job.wanted.clear();
  for (const auto& [key, gang] : parts_.core->core().gangs()) {
    if (!MayStartRanks(gang)) continue;
    const auto [at, is_new] = jobs_.try_emplace(gang.assignment.job_uid);
    Job& job = at->second;
    // Its ranks may just have started.
    const bool spare = gang.status.phase == GangPhase::kPrepared;
    if (is_new && !spare) job.last_start = now;
    if (spare) job.last_start = now - kSettle;
    job.seen = now;
    job.wanted.clear();  // Those of the newest generation.
    for (const RankStatus& rank : gang.status.ranks) {
      job.wanted.push_back({key, rank.rank});
    }
  }
  std::erase_if(jobs_, [&](const auto& entry) {
    return entry.second.wanted.empty() && now - entry.second.seen > kKeep;
  });
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto current = it++;
    if (!jobs_.contains(current->job_uid)) Remove(current);
  }
}

void WarmRanks::StartMissing(const std::string& uid, Job* job, MonoTime now) {
  size_t have = 0;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto current = it++;
    if (current->job_uid != uid) continue;
    // A gang that is away may come back.
    if (!job->wanted.empty() && have == job->wanted.size()) {
      Remove(current);
    } else {
      ++have;
    }
  }
  if (now < job->not_before || now - job->last_start < kSettle) return;
  for (; have < job->wanted.size(); ++have) {
    Start(uid, job, job->wanted[have], now);
  }
}

void WarmRanks::Start(const std::string& uid, Job* job, const RankRef& like,
                      MonoTime now) {
  std::optional<task::ShimSpec> sample = parts_.sample(like);
  if (!sample) return;
  task::ShimSpec spec = *sample;
  const std::string id = TaskIdOf(sample->socket_path);
  StatusOr<shim::WarmShim> warm = FailedPrecondition(
      "warm starts are for programs that Python runs: a script or a module");
  if (MakeWarm(&spec)) warm = shim::StartWarmShim(parts_.shim_program, spec);
  if (!warm.ok()) {
    parts_.cgroups->Drop(id);
    job->not_before = now + kLongestWait;
    LOG_WARN("{}: it will not start warm here: {}", Describe(like),
             Message(warm.status()));
    return;
  }
  LOG_DEBUG("{}: an interpreter like it imports", Describe(like));
  waiting_.push_back({uid, *std::move(sample), *std::move(warm), false, now});
}

void WarmRanks::Look(MonoTime now) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto current = it++;
    const auto words = shim::TakeWords(current->warm);
    if (words.ok() && *words) {
      current->ready = true;
      LOG_INFO("job {}: an interpreter is ready for a warm start: {}",
               current->sample.job, PrintableText(**words, kMaxReportedText));
      if (const auto job = jobs_.find(current->job_uid); job != jobs_.end()) {
        job->second.failures = 0;
      }
      continue;
    }
    const bool late = !current->ready && now - current->since > kReadyTime;
    if (words.ok() && !late) continue;
    Fail(current->job_uid, now);
    LOG_WARN("job {}: an interpreter for a warm start is given up: {}",
             current->sample.job,
             late ? "it has not imported everything in time" : "it has ended");
    Remove(current);
  }
}

void WarmRanks::Fail(const std::string& uid, MonoTime now) {
  ++failures_;
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return;
  const int doublings = std::min(job->second.failures++, 10);
  job->second.not_before =
      now + std::min(kFirstWait * (int64_t{1} << doublings), kLongestWait);
}

void WarmRanks::Remove(std::list<Waiting>::iterator waiting) {
  // Its interpreter ends with it. The orphan reaper takes what is left.
  (void)SendSignal(waiting->warm.shim, SIGKILL);
  (void)WaitExit(waiting->warm.shim, parts_.loop->Now().mono);
  parts_.cgroups->Drop(TaskIdOf(waiting->sample.socket_path));
  waiting_.erase(waiting);
}

void WarmRanks::Tell() {
  for (auto& [uid, job] : jobs_) {
    const auto ready = static_cast<int32_t>(std::count_if(
        waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
          return waiting.ready && waiting.job_uid == uid;
        }));
    if (job.wanted.empty()) continue;
    const GangKey key = job.wanted.front().gang;
    const LocalGang* const gang = parts_.core->Find(key);
    if (gang == nullptr || gang->status.warm == ready) continue;
    parts_.core->Tell(
        [&](AgentCore* core, Actions* out) { core->OnWarm(key, ready, out); });
  }
}

}  // namespace lockstep::worker::agent
