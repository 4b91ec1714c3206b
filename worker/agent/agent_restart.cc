// A rank that is started again alone, while the rest of its gang runs on: with
// its ports, its directory and its log, in the same generation.
//
// Its number (RankStatus.restarts) is on disk before its new process is, and
// the records of the old process are gone before that: a daemon that starts in
// between finds either a rank that has ended, and is told to start it again, or
// one that has never been started.
#include <errno.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/base/fault_point.h"
#include "common/base/logging.h"
#include "worker/agent/agent.h"
#include "worker/agent/readings/rank_readings.h"
#include "worker/shim/shim_client.h"

namespace lockstep {
namespace {

// The shim of the process before leaves once it was told that its exit is
// known.
constexpr Duration kShimTime = std::chrono::seconds(2);
constexpr Duration kRetry = std::chrono::milliseconds(3);

const RankStatus* StatusOf(const LocalGang* gang, int32_t rank) {
  if (gang == nullptr) return nullptr;
  for (const RankStatus& status : gang->status.ranks) {
    if (status.rank == rank) return &status;
  }
  return nullptr;
}

std::vector<int32_t> RanksBeside(const LocalGang& gang, int32_t rank) {
  std::vector<int32_t> beside;
  if (const LocalTask* task = TaskOf(*gang.assignment.spec, rank)) {
    for (const RankSpec& other : task->ranks) {
      if (other.rank != rank) beside.push_back(other.rank);
    }
  }
  return beside;
}

// All of the gang here, and whether `rank` needs them: the one of its task;
// rank 0 those that are of no task.
std::vector<std::pair<int32_t, bool>> PortsOf(const LocalGang& gang,
                                              int32_t rank) {
  const GangStatus& status = gang.status;
  const std::vector<LocalTask>& tasks = gang.assignment.spec->tasks;
  const LocalTask* own = TaskOf(*gang.assignment.spec, rank);
  std::vector<std::pair<int32_t, bool>> ports;
  for (size_t i = 0; i < status.ports.size(); ++i) {
    ports.emplace_back(status.ports[i], i < tasks.size() && &tasks[i] == own);
  }
  if (status.master_port != 0)
    ports.emplace_back(status.master_port, rank == 0);
  for (const auto& [name, port] : status.service_ports) {
    ports.emplace_back(port, rank == 0);
  }
  return ports;
}

void KillShim(const RankRef& ref, const std::string& task_record) {
  LOG_WARN("{}: the shim of its last process does not leave and is killed",
           Describe(ref));
  const auto record = ReadTaskRecord(task_record);
  if (!record.ok()) return;
  const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
  if (shim.ok()) (void)SendSignal(*shim, SIGKILL);
}

}  // namespace

bool Agent::IsRestart(const RankRef& ref) const {
  const RankStatus* status = StatusOf(core_.Find(ref.gang), ref.rank);
  return status != nullptr && status->restarts > 0;
}

void Agent::RestartRank(const RankRef& ref) {
  const LocalGang* gang = core_.Find(ref.gang);
  RankInfo& info = InfoOf(ref);
  LOG_INFO("{}: is started again alone, for the {}. time", Describe(ref),
           StatusOf(gang, ref.rank)->restarts);
  for (const std::string& path :
       {info.paths.exit_record, info.paths.page, info.paths.error_file}) {
    (void)files_->Remove(path);
  }
  info.usage = Usage();
  info.cpu_peak = CpuPeak();
  info.gpu_sum = 0;
  info.gpu_samples = 0;
  info.page.reset();
  info.progress = RankProgress();
  info.counters.reset();
  info.cgroup.reset();
  info.start = loop_->Now().wall;
  info.ended = false;
  info.task_id.clear();
  info.taken.clear();
  GangInfo& shared = gangs_[ref.gang];
  shared.search = OutputSearch::kNone;
  shared.outputs.clear();
  shared.work_walk = OutputSearch::kNone;
  shared.work.clear();
  shipper_.SetGoesOn(ref);
  const MonoTime now = loop_->Now().mono;
  RestartWhenFree(ref, now + kShimTime, now + config_.shim_leave_time);
}

void Agent::RestartWhenFree(const RankRef& ref, MonoTime kill_at,
                            MonoTime give_up) {
  const LocalGang* gang = core_.Find(ref.gang);
  const RankStatus* status = StatusOf(gang, ref.rank);
  if (status == nullptr || status->state != RankState::kPrepared) return;
  const RankInfo& info = InfoOf(ref);
  if (gang->assignment.goal >= Goal::kStop) {
    return NotStarted(ref, ECANCELED, "stopped before it was started again");
  }
  const MonoTime now = loop_->Now().mono;
  const bool held = supervisor_->IsHeld(ref, info.paths);
  if (held || !RestoreLeases(ref)) {
    if (now >= give_up) {
      if (held) {
        return NotStarted(ref, ETIMEDOUT, "its last shim does not leave");
      }
      return NotStarted(ref, EADDRINUSE,
                        "a port that was leased for it is held by another "
                        "worker of this host");
    }
    if (held && now >= kill_at) {
      KillShim(ref, info.paths.task_record);
      kill_at = now + kShimTime;
    }
    loop_->At(now + kRetry, [this, ref, kill_at, give_up, alive = alive_] {
      if (*alive) RestartWhenFree(ref, kill_at, give_up);
    });
    return;
  }
  // The old shim may have written them once more.
  (void)files_->Remove(info.paths.exit_record);
  (void)files_->Remove(info.paths.task_record);
  if (const Status saved = Save(ref.gang); !saved.ok()) {
    LOG_ERROR("{}: {}", Describe(ref), Message(saved));
  }
  (void)FaultPoint("worker.before_restart");
  StartRank(ref.gang, ref.rank);
}

// The old shim held them, and a gang whose last rank here had ended holds none
// any more.
bool Agent::RestoreLeases(const RankRef& ref) {
  const LocalGang* gang = core_.Find(ref.gang);
  std::vector<PortLease>& leases = gangs_[ref.gang].leases;
  bool all = true;
  for (const auto& [port, needed] : PortsOf(*gang, ref.rank)) {
    if (std::any_of(leases.begin(), leases.end(), [&](const PortLease& lease) {
          return lease.port() == port;
        })) {
      continue;
    }
    auto lease = PortLease::Take(port);
    // A rank of ours may have bound it.
    if (!lease.ok()) lease = PortLease::Adopt(port);
    if (lease.ok() && plain_binders_.contains(gang->assignment.job_uid)) {
      lease->LetBind();
    }
    if (lease.ok()) {
      leases.push_back(*std::move(lease));
    } else if (needed) {
      all = false;
    }
  }
  if (all) return true;
  // The shim of a rank beside it may hold it for both.
  const std::vector<int32_t> beside = RanksBeside(*gang, ref.rank);
  return std::any_of(beside.begin(), beside.end(), [&](int32_t rank) {
    return supervisor_->IsHeld({ref.gang, rank},
                               store_.PathsOf(ref.gang, rank));
  });
}

}  // namespace lockstep
