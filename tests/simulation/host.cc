#include "tests/simulation/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "tests/simulation/move.h"
#include "worker/agent/core/agent_core.h"

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using worker::agent::Actions;
using worker::agent::AgentCore;
using worker::agent::RankJoin;

}  // namespace

ExitStatus KilledBySignal(int32_t signal, std::string message) {
  ExitStatus exit;
  exit.how = ExitStatus::How::kSignal;
  exit.value = signal;
  exit.message = std::move(message);
  return exit;
}

WallTime Host::wall() const {
  return FromUnixNanos(int64_t{1'767'225'600} * 1'000'000'000) +
         parts_.time->passed() + ahead_;
}

void Host::Tell(int64_t pid, News news) {
  const auto it = processes_.find(pid);
  if (it == processes_.end()) return;
  if (ear_->listens()) return ear_->OnNews(news);
  it->second.outbox.push_back(std::move(news));
}

void Host::Start(const RankRef& ref, const Assignment& assignment,
                 std::optional<MonoTime> fence) {
  const int64_t pid = next_pid_++;
  Process& process = processes_[pid];
  process.ref = ref;
  process.uid = assignment.job_uid;
  process.native = worker::agent::IsNative(assignment);
  process.fence = fence;
  disk_.records[ref] = boot_;
  disk_.exits.erase(ref);
  parts_.checker->OnStart(pid,
                          {NodeLabel(parts_.index), ref.gang.job, process.uid,
                           ref.gang.generation, ref.rank, process.native});
  LOCKSTEP_TELL(parts_.story, "  node {} starts rank {} of job {} g{}",
                NodeLabel(parts_.index), ref.rank, ref.gang.job,
                ref.gang.generation);
  const auto name = [&](uint64_t what) {
    return Mix({what, HashOf(process.uid), ref.gang.generation,
                static_cast<uint64_t>(ref.rank)});
  };
  ArmFence(pid);
  parts_.time->After(
      parts_.time->Delay(2ms, 80ms, {name(20)}), [this, pid, ref] {
        Tell(pid, [ref, pid](AgentCore* core, Time, Actions* out) {
          core->OnRankStarted(ref.gang, ref.rank, pid, out);
        });
      });
  if (process.native) {
    Assignment told = assignment;
    told.away_ranks = AwayToldBy(assignment);
    parts_.training->Start(pid, this, told, ref.rank);
    // It joins with the others when it has their state.
    if (assignment.recovery > 0) return;
    parts_.time->After(parts_.time->Delay(100ms, 900ms, {name(21)}),
                       [this, pid] { Join(pid); });
    return;
  }
  const worker::agent::GangKey& key = ref.gang;
  const LocalTask* const task =
      worker::agent::TaskOf(*assignment.spec, ref.rank);
  if (task == nullptr || task->type == TaskType::kPs) return;
  const Duration work = parts_.time->Choose(5, {name(22)}) < 2 ? 90s : 12s;
  parts_.time->After(
      parts_.time->Delay(500ms, work, {name(23), key.generation}),
      [this, pid] { End(pid, ExitStatus()); });
}

// Rank 0 says where the others find it.
void Host::Join(int64_t pid) {
  const auto it = processes_.find(pid);
  if (it == processes_.end()) return;
  Process& process = it->second;
  const RankRef ref = process.ref;
  if (ref.rank != 0 && !process.joined && !process.waits) {
    process.waits = parts_.time->now();
    if (ear_->listens()) ear_->OnProcessWaits(pid);
    return;
  }
  process.joined = true;
  process.waits.reset();
  if (ref.rank == 0 && ear_->listens()) ear_->OnProcessPuts(ref);
  const RankJoin join{0, IsRecoverable(process.uid), IsElastic(process.uid)};
  Tell(pid, [ref, join](AgentCore* core, Time, Actions* out) {
    core->OnRankJoined(ref.gang, ref.rank, join, out);
  });
}

void Host::OnValue(const GangKey& gang) {
  for (auto& [pid, process] : processes_) {
    if (process.ref.gang != gang || !process.waits) continue;
    process.joined = true;
    parts_.time->After(2ms, [this, pid = pid] { Join(pid); });
  }
}

void Host::ArmFence(int64_t pid) {
  const Process& process = processes_.at(pid);
  if (!process.fence || parts_.bug == Bug::kIgnoresFence) return;
  parts_.time->At(*process.fence, [this, pid] {
    const auto it = processes_.find(pid);
    if (it == processes_.end()) return;
    if (*it->second.fence > parts_.time->now()) return ArmFence(pid);
    LOCKSTEP_TELL(parts_.story, "  node {}: the fence ends rank {} of job {}",
                  NodeLabel(parts_.index), it->second.ref.rank,
                  it->second.ref.gang.job);
    End(pid, KilledBySignal(SIGKILL, "its node was alone for too long"));
  });
}

void Host::Renew(const GangKey& gang, MonoTime fence) {
  for (auto& [pid, process] : processes_) {
    if (process.ref.gang == gang && process.fence) {
      process.fence = std::max(*process.fence, fence);
    }
  }
}

void Host::End(int64_t pid, ExitStatus exit) {
  const auto it = processes_.find(pid);
  if (it == processes_.end()) return;
  EndedRank ended{exit, ProgressOf(it->second.ref)};
  ended.exit.end_time = wall();
  const Process process = std::move(it->second);
  processes_.erase(it);
  disk_.exits[process.ref] = ended;
  parts_.checker->OnEnd(pid);
  if (process.native) {
    parts_.training->OnDead(pid, exit.ok());
  }
  LOCKSTEP_TELL(parts_.story, "  rank {} of job {} g{} ends on node {}: {} {}",
                process.ref.rank, process.ref.gang.job,
                process.ref.gang.generation, NodeLabel(parts_.index),
                lockstep::Describe(exit), exit.message);
  if (!ear_->listens()) return;
  for (const News& news : process.outbox) ear_->OnNews(news);
  ear_->OnProcessEnded(process.ref, ended);
}

void Host::ForEach(const RankRef& ref,
                   const std::function<void(int64_t)>& what) {
  std::vector<int64_t> pids;
  for (const auto& [pid, process] : processes_) {
    if (process.ref == ref) pids.push_back(pid);
  }
  for (const int64_t pid : pids) what(pid);
}

void Host::Terminate(const RankRef& ref, Duration grace) {
  ForEach(ref, [&](int64_t pid) {
    const uint64_t name = Mix({HashOf(ref.gang.job), ref.gang.generation,
                               static_cast<uint64_t>(ref.rank)});
    if (grace > Duration{} && parts_.time->Choose(4, {24, name}) > 0) {
      parts_.time->After(
          parts_.time->Delay(2ms, std::min<Duration>(grace, 800ms), {25, name}),
          [this, pid] { End(pid, KilledBySignal(SIGTERM, "")); });
    }
    parts_.time->After(grace + 1ms,
                       [this, pid] { End(pid, KilledBySignal(SIGKILL, "")); });
  });
}

void Host::Abort(const RankRef& ref) {
  ForEach(ref, [&](int64_t pid) {
    if (!processes_.at(pid).native) return;
    parts_.time->After(15ms, [this, pid] {
      ExitStatus exit;
      exit.value = worker::agent::kPeerLostCode;
      End(pid, exit);
    });
  });
}

void Host::Go(const RankRef& ref) {
  ForEach(ref, [&](int64_t pid) { parts_.training->OnGo(pid); });
}

void Host::Direct(const RankRef& ref, const Directive& directive) {
  ForEach(ref,
          [&](int64_t pid) { parts_.training->OnDirective(pid, directive); });
}

void Host::Recover(const RankRef& ref, const Assignment& assignment) {
  const std::vector<int32_t> away = AwayToldBy(assignment);
  ForEach(ref, [&](int64_t pid) {
    parts_.training->OnRecover(pid, assignment.recovery, away);
  });
}

std::vector<int32_t> Host::AwayToldBy(const Assignment& assignment) const {
  if (parts_.bug == Bug::kForgetsAway) return {};
  return assignment.away_ranks;
}

void Host::Reconnect() {
  std::vector<int64_t> pids;
  for (const auto& [pid, process] : processes_) pids.push_back(pid);
  for (const int64_t pid : pids) {
    Process& process = processes_.at(pid);
    const RankRef ref = process.ref;
    ear_->OnNews([ref, pid](AgentCore* core, Time, Actions* out) {
      core->OnRankStarted(ref.gang, ref.rank, pid, out);
    });
    for (const News& news : std::exchange(process.outbox, {})) {
      ear_->OnNews(news);
    }
    parts_.training->Repeat(pid);
    if (process.waits) ear_->OnProcessWaits(pid);
    if (process.joined && ref.rank == 0) ear_->OnProcessPuts(ref);
  }
}

const Process* Host::Find(const RankRef& ref) const {
  for (const auto& [pid, process] : processes_) {
    if (process.ref == ref) return &process;
  }
  return nullptr;
}

RankProgress Host::ProgressOf(const RankRef& ref) const {
  for (const auto& [pid, process] : processes_) {
    if (process.ref == ref && process.native) {
      return parts_.training->ProgressOf(pid);
    }
  }
  return {};
}

void Host::LosePower() {
  powered_ = false;
  ++boot_;
  parts_.training->disk()->LosePower(parts_.index);
  while (!processes_.empty()) {
    const RankRef ref = processes_.begin()->second.ref;
    End(processes_.begin()->first, KilledBySignal(SIGKILL, ""));
    // Nobody wrote that down.
    disk_.exits.erase(ref);
  }
}

}  // namespace lockstep::simulation
