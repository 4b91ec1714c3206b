#include "client/local/shutdown.h"

#include <unistd.h>

#include <set>
#include <thread>

#include "client/local/daemon.h"
#include "common/base/file.h"

namespace lockstep::cli {
namespace {

constexpr Duration kShutdownPoll = std::chrono::milliseconds(50);
constexpr Duration kShutdownCallTimeout = std::chrono::seconds(3);

StatusOr<std::vector<v1::Job>> UnfinishedJobs(Client* client) {
  ListJobsOptions options;
  options.states = {v1::JOB_STATE_QUEUED,    v1::JOB_STATE_PLACING,
                    v1::JOB_STATE_PREPARING, v1::JOB_STATE_FORMING,
                    v1::JOB_STATE_RUNNING,   v1::JOB_STATE_FINISHING};
  return client->ListJobs(options);
}

}  // namespace

StatusOr<int> CancelAllJobs(ClientOptions options, Duration patience) {
  options.timeout = kShutdownCallTimeout;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, Client::Connect(options));
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

Status RemoveClusterFiles(const LocalLayout& layout,
                          const ClusterRecord& record) {
  FileSystem* const files = RealFileSystem();
  std::vector<std::string> paths = {layout.CaDir(), layout.UserDir()};
  for (const std::string& daemon : DaemonNames(record)) {
    paths.push_back(layout.DaemonDir(daemon));
  }
  paths.push_back(layout.MachinesFile());
  paths.push_back(layout.HttpTokenFile());
  // Last, because a cleanup needs cluster.json.
  paths.push_back(layout.StateFile());
  paths.push_back(layout.ClusterFile());
  paths.push_back(layout.LockFile());
  for (const std::string& path : paths) {
    LOCKSTEP_RETURN_IF_ERROR(files->RemoveAll(path));
  }
  // Fails if other files are there; they stay.
  rmdir(layout.dir.c_str());
  return OkStatus();
}

}  // namespace lockstep::cli
