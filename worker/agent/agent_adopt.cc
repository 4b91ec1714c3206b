// What an earlier daemon of this node has left.
#include <signal.h>

#include <utility>

#include "common/base/logging.h"
#include "worker/agent/agent.h"
#include "worker/agent/host/dead_sockets.h"
#include "worker/agent/host/orphans.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/shim/shim_client.h"

namespace lockstep {
namespace {

// What is forked while the others are killed: until a round finds none.
constexpr int kStrayRounds = 5;

}  // namespace

void Agent::AdoptAll(const TaskStore::Found& found) {
  for (const StoredGang& stored : found.gangs) AdoptGang(stored);
  // Nothing writes any more to what is removed then.
  KillStrayProcesses();
  for (const std::string& directory : found.damaged) ClearDamaged(directory);
  if (const int removed =
          RemoveDeadSockets(config_.runtime_dir, loop_->Now().wall);
      removed > 0) {
    LOG_INFO("{}: {} sockets of shims that were killed are removed",
             config_.runtime_dir, removed);
  }
  for (const std::string& directory : found.aside) RemoveAside(directory);
}

// Where a shim was killed together with the daemon, what its rank had started
// is alive, and nobody else will look for it.
void Agent::KillStrayProcesses() {
  int killed = 0;
  for (int round = 0; round < kStrayRounds; ++round) {
    // First: whose record is read later was not in the list, or is known.
    const std::vector<ProcessStat> all = ReadAllProcesses();
    std::set<std::string> live;
    for (const auto& [ref, info] : ranks_) {
      const auto record = ReadTaskRecord(info.paths.task_record);
      if (!record.ok() || record->boot_id != config_.node.boot_id) continue;
      const ProcessId shim{record->shim.pid, record->shim.start_time};
      if (OpenVerified(shim).ok()) live.insert(TaskIdOf(record->socket_path));
    }
    const int now = KillStrays(all, mark_, live);
    killed += now;
    if (now == 0) break;
  }
  if (killed > 0) {
    LOG_WARN("{} processes of tasks that nobody holds any more are killed",
             killed);
  }
}

void Agent::AdoptPorts(const StoredGang& stored, GangInfo* gang) {
  std::vector<int32_t> ports = stored.status.ports;
  if (stored.status.master_port != 0) {
    ports.push_back(stored.status.master_port);
  }
  for (const auto& [name, port] : stored.status.service_ports) {
    ports.push_back(port);
  }
  for (const int32_t port : ports) {
    auto lease = PortLease::Adopt(port);
    if (lease.ok()) {
      gang->leases.push_back(*std::move(lease));
    } else if (lease.status().code() != StatusCode::kAlreadyExists) {
      // Else its task's shim holds it, as it should.
      LOG_WARN("{}", Message(lease.status()));
    }
  }
}

void Agent::AdoptGang(const StoredGang& stored) {
  const GangKey key{stored.assignment.job, stored.assignment.generation};
  LOG_INFO("{}: found from before the restart, {}", Describe(key),
           Name(stored.status.phase));
  core_.Adopt(stored.assignment, stored.status);
  GangInfo& gang = gangs_[key];
  gang.link_nonces = stored.link_nonces;
  gang.outputs = stored.status.outputs;
  gang.work = stored.status.work;
  const bool over = stored.status.phase == GangPhase::kStopped ||
                    stored.status.phase == GangPhase::kRefused;
  if (!over) AdoptPorts(stored, &gang);
  // Told again once it is known.
  if (gang.outputs.empty()) (void)AwaitsOutputs(key);
  if (gang.work.empty()) (void)AwaitsWork(key);
  for (const RankStatus& rank : stored.status.ranks) {
    const RankRef ref{key, rank.rank};
    RankInfo& info = InfoOf(ref);
    info.progress = rank.progress;
    info.usage = rank.usage;
    shipper_.Add(ref, stored.assignment.job_uid, info.paths.log);
    if (rank.exit || over) {
      info.ended = true;
      shipper_.SetEnded(ref);
      continue;
    }
    if (const auto record = ReadTaskRecord(info.paths.task_record);
        record.ok()) {
      info.start = FromUnixNanos(record->started_unix_nanos);
      info.task_id = TaskIdOf(record->socket_path);
      // Of docker's containers nobody can tell who listens.
      if (record->engine.find("docker") == std::string::npos) {
        info.ports = {record->ports.begin(), record->ports.end()};
      }
      if (config_.cgroups != nullptr && config_.cgroups->Exists(info.task_id)) {
        info.cgroup = config_.cgroups->PathOf(info.task_id);
      }
    }
    ExpectRank(key, rank.rank);
    supervisor_->Adopt(ref, info.paths);
  }
}

void Agent::ClearDamaged(const std::string& directory) {
  const auto names =
      files_->List(directory).value_or(std::vector<std::string>());
  if (names.empty() || names == std::vector<std::string>{"code"}) {
    LOG_INFO("{}: the daemon before this one left while it was prepared",
             directory);
  } else {
    LOG_ERROR(
        "{} holds no readable record of its gang: its processes are "
        "killed and it is removed",
        directory);
  }
  for (const std::string& name : names) {
    const auto record =
        ReadTaskRecord(JoinPath(JoinPath(directory, name), "task.record"));
    if (!record.ok() || record->boot_id != config_.node.boot_id) continue;
    const auto shim = OpenVerified({record->shim.pid, record->shim.start_time});
    const auto seen =
        files_->Read(JoinPath(JoinPath(directory, name), "processes"), 1 << 20);
    KillLeftovers(*record, DecodeProcesses(seen.value_or(std::string())));
    if (!record->container.empty()) RemoveContainer(*record, [] {});
    DropCgroup(TaskIdOf(record->socket_path));
    if (shim.ok()) (void)SendSignal(*shim, SIGKILL);
  }
  RemoveLater(directory);
}

}  // namespace lockstep
