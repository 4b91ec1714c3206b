// A whole cluster on this machine: a coordinator and worker daemons as real
// processes under one directory, with a certificate authority of their own.
// For `lockstep local` and for tests.
//
//   LocalClusterOptions options;
//   options.dir = dir;
//   LOCKSTEP_ASSIGN_OR_RETURN(auto cluster, LocalCluster::Start(options));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto client,
//                             Client::Connect(cluster->client_options()));
//
// The processes live on without this object; layout.h says what is where.
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

namespace lockstep {

struct LocalClusterOptions {
  // Made where it is missing.
  std::string dir;
  // What is unset is as the cluster was before; at first two workers that
  // divide the whole machine between them.
  std::optional<int> workers;
  // All workers together.
  std::optional<double> cpus;
  std::optional<int64_t> memory_bytes;
  std::optional<int> gpus;
  std::optional<std::string> prices;
  std::optional<std::string> log_level;
  std::optional<bool> insecure_loopback;
  // Whether HTTP asks for a token. A new cluster's does.
  std::optional<bool> http_token;

  // Where the daemons' programs are. Empty: $LOCKSTEP_BIN, else beside this
  // program.
  std::string bin_dir;
  // Of the user's certificate.
  std::string user = "local";
  // For tests: more flags of a daemon, by its name, or of each one ("").
  std::map<std::string, std::vector<std::string>> extra_arguments;
  // Until all serve and are registered.
  Duration ready_timeout = std::chrono::seconds(30);
  // Asked while Up waits: true ends it with Cancelled. May be null.
  std::function<bool()> stopped;
};

struct DaemonStatus {
  std::string name;
  bool running = false;
  pid_t pid = 0;  // 0 where it does not run.
  // HOST:PORT; gRPC of the coordinator only.
  std::string grpc;
  std::string http;
  std::string directory;
  std::string log;
};

struct DownOptions {
  // Also removes what it made in the directory, and that if it is empty then.
  bool clean = false;
  // For the jobs to end after they are cancelled; then their tasks are killed.
  Duration job_patience = std::chrono::seconds(15);
  // Between SIGTERM and SIGKILL of a daemon.
  Duration grace = std::chrono::seconds(10);
};

struct DownResult {
  int daemons = 0;
  int cancelled_jobs = 0;
  // Shims that were killed as their jobs had not ended.
  int killed_tasks = 0;
};

// Not safe from several threads. Several processes may hold the same cluster:
// what starts and stops daemons is done under a lock file.
class LocalCluster {
 public:
  // Opens it, or writes it down first, and does Up.
  // Errors, beside those of Up: FailedPrecondition when `options` ask for
  // something else while daemons run.
  static StatusOr<std::unique_ptr<LocalCluster>> Start(
      const LocalClusterOptions& options);
  // Checks the options and touches nothing: for who wants to hear what Up
  // started.
  static StatusOr<std::unique_ptr<LocalCluster>> Make(
      const LocalClusterOptions& options);
  // Changes nothing. NotFound where there is none.
  static StatusOr<std::unique_ptr<LocalCluster>> Open(
      const LocalClusterOptions& options);
  // Leaves the processes.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // Starts what does not run, leaves what does, and waits until the
  // coordinator serves and every worker is READY. Returns the names of what it
  // started. Errors:
  //   Unavailable       a daemon ended or is not ready in time: names it, with
  //                     the last line of its log. What runs is left running.
  //   FailedPrecondition  a port is another program's now
  //   Cancelled         LocalClusterOptions::stopped said so
  StatusOr<std::vector<std::string>> Up();
  // Cancels the jobs, stops the daemons, kills tasks that are left.
  StatusOr<DownResult> Down(const DownOptions& options);
  std::vector<DaemonStatus> Daemons() const;

  // One daemon: "coordinator", "worker-0", ... InvalidArgument: no such name.
  // Kill fails with FailedPrecondition where it does not run. After SIGKILL it
  // waits until the process is gone.
  Status Kill(const std::string& daemon, int signal);
  // Stops it if it runs (SIGTERM), starts it and waits until it is ready.
  Status Restart(const std::string& daemon);
  // Starts it, and does not wait.
  Status StartDaemon(const std::string& daemon);
  Status WaitReady();
  // DeadlineExceeded when it still runs after `timeout`.
  StatusOr<ProcessExit> WaitEnded(const std::string& daemon, Duration timeout);
  // 0 where it does not run.
  pid_t Pid(const std::string& daemon) const;

  // For tests: LocalClusterOptions::extra_arguments of daemons that are
  // started from now on.
  void set_extra_arguments(
      std::map<std::string, std::vector<std::string>> arguments) {
    options_.extra_arguments = std::move(arguments);
  }

  // How to connect as its admin.
  ClientOptions client_options() const;
  const LocalLayout& layout() const { return layout_; }
  const ClusterRecord& record() const { return record_; }
  std::string grpc_address() const;
  // With the token that all daemons' HTTP asks for; empty: it asks for none.
  std::string http_token_file() const;
  // InvalidArgument: no such daemon.
  StatusOr<std::string> http_address(const std::string& daemon) const;

 private:
  LocalCluster(LocalClusterOptions options, LocalLayout layout);

  Status CheckName(const std::string& daemon) const;
  Status ReadRecords();
  // Writes `record` down. FailedPrecondition if daemons run with another one.
  Status SetRecord(const ClusterRecord& record);
  Status StartLocked(const std::string& daemon);

  LocalClusterOptions options_;
  const LocalLayout layout_;
  ClusterRecord record_;
  DaemonProcesses processes_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_LOCAL_CLUSTER_H_
