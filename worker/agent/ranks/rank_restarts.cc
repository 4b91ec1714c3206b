#include "worker/agent/ranks/rank_restarts.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>
#include <vector>

#include "common/base/fault_point.h"
#include "common/base/logging.h"
#include "worker/shim/shim_client.h"

namespace lockstep::worker::agent {
namespace {

// Time for the previous shim to exit after its exit record is acknowledged.
constexpr Duration kShimTime = std::chrono::seconds(2);
constexpr Duration kRetry = std::chrono::milliseconds(3);
// A program that starts may take a processor for seconds, and those that it is
// to join again stand still meanwhile.
constexpr Duration kOthersTime = std::chrono::seconds(1);

const RankStatus* StatusOf(const LocalGang* gang, int32_t rank) {
  return gang == nullptr ? nullptr : FindRank(*gang, rank);
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

void KillShim(const RankRef& ref, const std::string& task_record) {
  LOG_WARN("{}: killing the shim of its previous process, which does not exit",
           Describe(ref));
  const auto record = shim::ReadTaskRecord(task_record);
  if (!record.ok()) return;
  const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
  if (shim.ok()) (void)SendSignal(*shim, SIGKILL);
}

}  // namespace

bool RankRestarts::IsRestart(const RankRef& ref) const {
  const RankStatus* status = StatusOf(parts_.core->Find(ref.gang), ref.rank);
  return status != nullptr && status->restarts > 0 &&
         parts_.table->all().contains(ref) && parts_.links->HasNonces(ref.gang);
}

void RankRestarts::Restart(const RankRef& ref) {
  Rank& rank = parts_.table->Get(ref);
  LOG_INFO("{}: restarting it alone, attempt {}", Describe(ref),
           StatusOf(parts_.core->Find(ref.gang), ref.rank)->restarts);
  for (const std::string& path :
       {rank.paths.exit_record, rank.paths.page, rank.paths.error_file}) {
    (void)files_->Remove(path);
  }
  // What its old process still says is not the new one's.
  parts_.links->Forget(ref);
  parts_.sampler->Restart(ref);
  parts_.ports->SetGoesOn(ref);
  rank.start = parts_.loop->Now().wall;
  rank.ended = false;
  rank.task_id.clear();
  hooks_->restarting(ref.gang);
  parts_.logs->SetGoesOn(ref);
  const MonoTime now = parts_.loop->Now().mono;
  StartWhenFree(ref, {.kill_shim = now + kShimTime,
                      .give_up = now + parts_.options->shim_leave_time,
                      .others = now + kOthersTime});
}

void RankRestarts::StartWhenFree(const RankRef& ref, Deadlines deadlines) {
  const LocalGang* gang = parts_.core->Find(ref.gang);
  const RankStatus* status = StatusOf(gang, ref.rank);
  if (status == nullptr || status->state != RankState::kPrepared) return;
  const RankPaths& paths = parts_.table->Get(ref).paths;
  if (gang->assignment.goal >= Goal::kStop) {
    return parts_.exits->OnNotStarted(ref, ECANCELED,
                                      "stopped before its restart");
  }
  const MonoTime now = parts_.loop->Now().mono;
  const bool held = parts_.supervisor->IsHeld(ref, paths);
  const bool others = now < deadlines.others && OthersRecover(*gang, ref.rank);
  // Taken while it waits: what is free may go to another program.
  const bool has_ports = !held && HasPorts(ref, *gang);
  if (!has_ports || others) {
    if (now >= deadlines.give_up && !others) {
      if (held) {
        return parts_.exits->OnNotStarted(ref, ETIMEDOUT,
                                          "its previous shim does not exit");
      }
      return parts_.exits->OnNotStarted(
          ref, EADDRINUSE,
          "another worker of this host holds a port that was leased to it");
    }
    if (held && now >= deadlines.kill_shim) {
      KillShim(ref, paths.task_record);
      deadlines.kill_shim = now + kShimTime;
    }
    parts_.loop->At(now + kRetry, lifetime_.Guard([this, ref, deadlines] {
      StartWhenFree(ref, deadlines);
    }));
    return;
  }
  // The old shim may have written them once more.
  (void)files_->Remove(paths.exit_record);
  (void)files_->Remove(paths.task_record);
  hooks_->save(ref.gang);
  (void)FaultPoint("worker.before_restart");
  starter_->Start(ref);
}

bool RankRestarts::HasPorts(const RankRef& ref, const LocalGang& gang) {
  if (parts_.ports->Restore(ref.gang, gang, ref.rank)) return true;
  // The shim of another rank of the task may hold it for both.
  const std::vector<int32_t> beside = RanksBeside(gang, ref.rank);
  return std::any_of(beside.begin(), beside.end(), [&](int32_t rank) {
    return parts_.supervisor->IsHeld({ref.gang, rank},
                                     parts_.store->PathsOf(ref.gang, rank));
  });
}

}  // namespace lockstep::worker::agent
