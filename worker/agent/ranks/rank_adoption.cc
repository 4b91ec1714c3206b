#include "worker/agent/ranks/rank_adoption.h"

#include <signal.h>

#include <set>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "worker/agent/host/dead_sockets.h"
#include "worker/agent/host/orphans.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/shim/shim_client.h"

namespace lockstep::worker::agent {
namespace {

// Killed processes may fork meanwhile, so repeat until a round finds none.
constexpr int kStrayRounds = 5;

}  // namespace

void RankAdoption::Adopt(const TaskStore::Found& found) {
  for (const StoredGang& stored : found.gangs) AdoptGang(stored);
  // Nothing writes any more to what is removed then.
  KillStrayProcesses();
  for (const std::string& directory : found.damaged) ClearDamaged(directory);
  const std::string& sockets = parts_.setup->runtime_dir;
  if (const int removed = RemoveDeadSockets(sockets, parts_.loop->Now().wall);
      removed > 0) {
    LOG_INFO("{}: removed {} sockets of killed shims", sockets, removed);
  }
  for (const std::string& directory : found.aside) {
    removal_->RemoveAside(directory);
  }
}

// Where a shim was killed together with the daemon, what its rank had started
// is alive, and nothing else will look for it.
void RankAdoption::KillStrayProcesses() {
  int killed = 0;
  for (int round = 0; round < kStrayRounds; ++round) {
    // First: whose record is read later was not in the list, or is known.
    const std::vector<ProcessStat> all = ReadAllProcesses();
    std::set<std::string> live;
    for (const auto& [ref, rank] : parts_.table->all()) {
      const auto record = shim::ReadTaskRecord(rank.paths.task_record);
      if (!record.ok() || record->boot_id != parts_.setup->node.boot_id) {
        continue;
      }
      const ProcessId shim{record->shim.pid, record->shim.start_time};
      if (OpenVerified(shim).ok()) live.insert(TaskIdOf(record->socket_path));
    }
    const Leftovers now = KillStrays(all, parts_.setup->mark, live);
    parts_.supervisor->stuck()->Add(now.left, "", parts_.loop->Now().wall);
    killed += now.killed;
    if (now.killed == 0) break;
  }
  if (killed > 0) {
    LOG_WARN("killed {} processes of tasks whose shim is gone", killed);
  }
}

void RankAdoption::AdoptGang(const StoredGang& stored) {
  const GangKey key{stored.assignment.job, stored.assignment.generation};
  LOG_INFO("{}: recovered after the restart, {}", Describe(key),
           Name(stored.status.phase));
  parts_.core->Adopt(stored.assignment, stored.status);
  parts_.links->SetNonces(key, stored.link_nonces);
  const bool over = IsOver(stored.status.phase);
  if (!over) parts_.ports->AdoptLeases(key, stored.status);
  hooks_->adopted(key, stored.status);
  for (const RankStatus& status : stored.status.ranks) {
    const RankRef ref{key, status.rank};
    Rank& rank = parts_.table->Get(ref);
    parts_.sampler->Adopt(ref, status.progress, status.usage);
    parts_.logs->Add(ref, stored.assignment.job_uid, rank.paths.log);
    if (status.exit || over) {
      rank.ended = true;
      parts_.logs->SetEnded(ref);
      continue;
    }
    AdoptRank(ref);
  }
}

void RankAdoption::AdoptRank(const RankRef& ref) {
  Rank& rank = parts_.table->Get(ref);
  if (const auto record = shim::ReadTaskRecord(rank.paths.task_record);
      record.ok()) {
    rank.start = FromUnixNanos(record->started_unix_nanos);
    rank.task_id = TaskIdOf(record->socket_path);
    // In docker's containers it is not known which process listens.
    if (record->engine.find("docker") == std::string::npos) {
      parts_.ports->Adopt(ref, {record->ports.begin(), record->ports.end()});
    }
    if (const auto cgroup = parts_.cgroups->Find(rank.task_id)) {
      parts_.sampler->SetCgroup(ref, *cgroup);
    }
  }
  parts_.links->Expect(ref, rank.paths.page);
  parts_.supervisor->Adopt(ref, rank.paths);
}

void RankAdoption::ClearDamaged(const std::string& directory) {
  const auto names =
      files_->List(directory).value_or(std::vector<std::string>());
  if (names.empty() || names == std::vector<std::string>{"code"}) {
    LOG_INFO("{}: the previous daemon stopped while it prepared this gang",
             directory);
  } else {
    LOG_ERROR(
        "{} has no readable gang record: killing its processes and removing it",
        directory);
  }
  for (const std::string& name : names) {
    const auto record = shim::ReadTaskRecord(
        JoinPath(JoinPath(directory, name), "task.record"));
    if (!record.ok() || record->boot_id != parts_.setup->node.boot_id) continue;
    const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
    const auto seen =
        files_->Read(JoinPath(JoinPath(directory, name), "processes"), 1 << 20);
    const Leftovers leftovers =
        KillLeftovers(*record, DecodeProcesses(seen.value_or(std::string())));
    parts_.supervisor->stuck()->Add(leftovers.left, record->job,
                                    parts_.loop->Now().wall);
    if (!record->container.empty()) {
      parts_.containers->Remove(*record, [] {});
    }
    parts_.cgroups->Drop(TaskIdOf(record->socket_path));
    if (shim.ok()) (void)SendSignal(*shim, SIGKILL);
  }
  removal_->RemoveLater(directory);
}

}  // namespace lockstep::worker::agent
