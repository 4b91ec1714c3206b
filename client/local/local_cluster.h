// A cluster on this machine: a coordinator and worker daemons as real processes
// under one directory, with their own certificate authority. For `lockstep
// local` and for tests.
//
//   LocalClusterOptions options;
//   options.dir = dir;
//   LOCKSTEP_ASSIGN_OR_RETURN(auto cluster, LocalCluster::Start(options));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto client,
//                             Client::Connect(cluster->client_options()));
//
// The processes outlive this object. layout.h describes the directory.
#ifndef LOCKSTEP_CLIENT_LOCAL_LOCAL_CLUSTER_H_
#define LOCKSTEP_CLIENT_LOCAL_LOCAL_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/lib/client.h"
#include "client/local/daemon_processes.h"
#include "client/local/layout.h"
#include "client/local/records.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/os/process.h"

namespace lockstep::cli {

struct LocalClusterOptions {
  // Created if missing.
  std::string dir;
  // Unset options keep the cluster's values. A new cluster has two workers that
  // share the whole machine.
  std::optional<int> workers;
  // Sum over all workers.
  std::optional<double> cpus;
  std::optional<int64_t> memory_bytes;
  std::optional<int> gpus;
  std::optional<std::string> prices;
  std::optional<std::string> log_level;
  std::optional<bool> insecure_loopback;
  // HTTP requires a token. The default for new clusters.
  std::optional<bool> http_token;

  // The directory of the daemons' programs. Empty for $LOCKSTEP_BIN, or the
  // directory of this program.
  std::string bin_dir;
  // Name in the user's certificate.
  std::string user = "local";
  // For tests: additional flags by daemon name; "" for all daemons.
  std::map<std::string, std::vector<std::string>> extra_arguments;
  // Time until all daemons serve and are registered.
  Duration ready_timeout = std::chrono::seconds(30);
  // Polled while Up waits; true ends it with Cancelled. May be null.
  std::function<bool()> stopped;
};

struct DaemonStatus {
  std::string name;
  bool running = false;
  pid_t pid = 0;  // 0 if it does not run.
  // HOST:PORT. Only the coordinator has gRPC.
  std::string grpc;
  std::string http;
  std::string directory;
  std::string log;
};

struct DownOptions {
  // Also removes its files in the directory, and the directory if empty.
  bool clean = false;
  // Time for cancelled jobs to end before their tasks are killed.
  Duration job_patience = std::chrono::seconds(15);
  // Time between SIGTERM and SIGKILL for a daemon.
  Duration grace = std::chrono::seconds(10);
};

struct DownResult {
  int daemons = 0;
  int cancelled_jobs = 0;
  // Shims killed because their jobs had not ended.
  int killed_tasks = 0;
};

// Not thread-safe. Several processes may hold the same cluster, because starts
// and stops use a lock file.
class LocalCluster {
 public:
  // Opens the cluster or records a new one, and calls Up. Errors besides those
  // of Up: FailedPrecondition if `options` differ while daemons run.
  static StatusOr<std::unique_ptr<LocalCluster>> Start(
      const LocalClusterOptions& options);
  // Checks the options without effects, so that the caller can call Up and see
  // which daemons it started.
  static StatusOr<std::unique_ptr<LocalCluster>> Make(
      const LocalClusterOptions& options);
  // Changes nothing. NotFound if there is no cluster.
  static StatusOr<std::unique_ptr<LocalCluster>> Open(
      const LocalClusterOptions& options);
  // The processes run on.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // Starts the daemons that do not run, and waits until the coordinator serves
  // and every worker is READY. Returns the names of started daemons. Errors:
  //   Unavailable         a daemon exited or is not ready in time; names it and
  //                       the last line of its log. Other daemons run on.
  //   FailedPrecondition  another program uses a port
  //   Cancelled           LocalClusterOptions::stopped returned true
  StatusOr<std::vector<std::string>> Up();
  // Cancels the jobs, stops the daemons and kills remaining tasks.
  StatusOr<DownResult> Down(const DownOptions& options);
  std::vector<DaemonStatus> Daemons() const;

  // For one daemon: "coordinator", "worker-0", ... InvalidArgument for an
  // unknown name. Kill fails with FailedPrecondition if it does not run. After
  // SIGKILL it waits until the process is gone.
  Status Kill(const std::string& daemon, int signal);
  // Stops it if it runs (SIGTERM), starts it and waits until it is ready.
  Status Restart(const std::string& daemon);
  // Starts it without waiting.
  Status StartDaemon(const std::string& daemon);
  Status WaitReady();
  // DeadlineExceeded if it still runs after `timeout`.
  StatusOr<ProcessExit> WaitEnded(const std::string& daemon, Duration timeout);
  // 0 if it does not run.
  pid_t Pid(const std::string& daemon) const;

  // For tests: sets LocalClusterOptions::extra_arguments for later starts.
  void set_extra_arguments(
      std::map<std::string, std::vector<std::string>> arguments) {
    options_.extra_arguments = std::move(arguments);
  }

  // Connects as the cluster's admin.
  ClientOptions client_options() const;
  const LocalLayout& layout() const { return layout_; }
  const ClusterRecord& record() const { return record_; }
  std::string grpc_address() const;
  // The file with the HTTP token of all daemons. Empty if none is required.
  std::string http_token_file() const;
  // InvalidArgument for an unknown daemon.
  StatusOr<std::string> http_address(const std::string& daemon) const;

 private:
  LocalCluster(LocalClusterOptions options, LocalLayout layout);

  Status CheckName(const std::string& daemon) const;
  Status ReadRecords();
  // Stores `record`. FailedPrecondition if daemons run with another one.
  Status SetRecord(const ClusterRecord& record);
  Status StartLocked(const std::string& daemon);

  LocalClusterOptions options_;
  const LocalLayout layout_;
  ClusterRecord record_;
  DaemonProcesses processes_;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_LOCAL_CLUSTER_H_
