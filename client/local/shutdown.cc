// LocalCluster: stopping all.
#include <signal.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "client/local/daemon.h"
#include "client/local/leftovers.h"
#include "client/local/local_cluster.h"
#include "client/local/lock.h"
#include "common/base/file.h"

namespace lockstep {
namespace {

constexpr Duration kShutdownPoll = std::chrono::milliseconds(50);
constexpr Duration kShutdownCallTimeout = std::chrono::seconds(3);
constexpr Duration kLeftoverTimeout = std::chrono::seconds(10);

StatusOr<std::vector<v1::Job>> UnfinishedJobs(Client* client) {
  ListJobsOptions options;
  options.states = {v1::JOB_STATE_QUEUED,    v1::JOB_STATE_PLACING,
                    v1::JOB_STATE_PREPARING, v1::JOB_STATE_FORMING,
                    v1::JOB_STATE_RUNNING,   v1::JOB_STATE_FINISHING};
  return client->ListJobs(options);
}

}  // namespace

StatusOr<int> LocalCluster::CancelJobs(Duration patience) {
  ClientOptions client_options = this->client_options();
  client_options.timeout = kShutdownCallTimeout;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, Client::Connect(client_options));
  const SystemClock clock;
  const MonoTime deadline = clock.Now().mono + patience;
  std::set<std::string> cancelled;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto jobs, UnfinishedJobs(client.get()));
    for (const v1::Job& job : jobs) {
      if (!cancelled.insert(job.name()).second) continue;
      LOCKSTEP_RETURN_IF_ERROR(client->CancelJob(job.name()).status());
    }
    if (jobs.empty() || clock.Now().mono >= deadline) {
      return static_cast<int>(cancelled.size());
    }
    std::this_thread::sleep_for(kShutdownPoll);
  }
}

StatusOr<int> LocalCluster::StopDaemons(Duration grace) {
  const SystemClock clock;
  std::vector<Process> running;
  for (const std::string& daemon : DaemonNames()) {
    auto recorded = OpenDaemon(daemon);
    if (recorded.ok()) {
      running.push_back(*std::move(recorded));
      continue;
    }
    for (Process& stray :
         FindDaemons(DaemonProgram(daemon), layout_.DaemonDir(daemon))) {
      running.push_back(std::move(stray));
    }
  }
  for (const Process& process : running) {
    // One that is stopped (SIGSTOP) would never see it otherwise.
    SendSignal(process, SIGTERM).IgnoreError();
    SendSignal(process, SIGCONT).IgnoreError();
  }
  const MonoTime deadline = clock.Now().mono + grace;
  for (const Process& process : running) {
    if (!WaitExit(process, deadline).ok()) {
      SendSignal(process, SIGKILL).IgnoreError();
      LOCKSTEP_RETURN_IF_ERROR(
          WaitExit(process, clock.Now().mono + kKillTimeout).status());
    }
  }
  // Children that had ended before.
  for (const auto& [daemon, process] : children_) {
    WaitExit(process, clock.Now().mono).IgnoreError();
  }
  children_.clear();
  return static_cast<int>(running.size());
}

Status LocalCluster::RemoveOwnFiles() {
  FileSystem* const files = RealFileSystem();
  std::vector<std::string> paths = {layout_.CaDir(), layout_.UserDir()};
  for (const std::string& daemon : DaemonNames()) {
    paths.push_back(layout_.DaemonDir(daemon));
  }
  paths.push_back(layout_.MachinesFile());
  paths.push_back(layout_.HttpTokenFile());
  // Last: without cluster.json there is nothing left to clean.
  paths.push_back(layout_.StateFile());
  paths.push_back(layout_.ClusterFile());
  paths.push_back(layout_.LockFile());
  for (const std::string& path : paths) {
    LOCKSTEP_RETURN_IF_ERROR(files->RemoveAll(path));
  }
  // Fails where somebody else keeps files there: they stay.
  rmdir(layout_.dir.c_str());
  return OkStatus();
}

StatusOr<DownResult> LocalCluster::Down(const DownOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd lock,
                            LockFile(layout_.LockFile(), kLockTimeout));
  LOCKSTEP_RETURN_IF_ERROR(ReadRecords());
  DownResult result;
  if (OpenDaemon(kCoordinator).ok()) {
    // Where it does not answer, the tasks are killed below.
    const auto cancelled = CancelJobs(options.job_patience);
    if (cancelled.ok()) result.cancelled_jobs = *cancelled;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(result.daemons, StopDaemons(options.grace));
  LOCKSTEP_ASSIGN_OR_RETURN(
      result.killed_tasks,
      KillLeftovers({layout_.dir, record_.runtime_dir}, kLeftoverTimeout));
  state_.clear();
  LOCKSTEP_RETURN_IF_ERROR(WriteState());
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(record_.runtime_dir));
  if (options.clean) {
    LOCKSTEP_RETURN_IF_ERROR(RemoveOwnFiles());
  }
  return result;
}

}  // namespace lockstep
