#include "client/local/local_cluster.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "client/local/certificates.h"
#include "client/local/daemon.h"
#include "client/local/leftovers.h"
#include "client/local/lock.h"
#include "client/local/machines_table.h"
#include "client/local/ports.h"
#include "client/local/readiness.h"
#include "client/local/settings.h"
#include "client/local/shutdown.h"
#include "common/base/file.h"

namespace lockstep::cli {
namespace {

constexpr Duration kLeftoverTimeout = std::chrono::seconds(10);
constexpr Duration kStopGrace = std::chrono::seconds(10);
constexpr uint64_t kMaxMachinesFile = 1 << 20;

std::string DefaultBinDir() {
  if (const char* const dir = getenv("LOCKSTEP_BIN"); dir && *dir) return dir;
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof(self));
  const std::string path(self, std::max<ssize_t>(size, 0));
  return path.substr(0, path.rfind('/'));
}

// Writes the file unless the user changed it.
Status WriteMachines(const std::string& path, double cpus,
                     int64_t memory_bytes) {
  FileSystem* const files = RealFileSystem();
  if (files->Exists(path)) {
    // An unreadable or too long file is the user's.
    const auto before = files->Read(path, kMaxMachinesFile);
    if (!before.ok() || !IsOwnMachinesFile(*before)) return OkStatus();
  }
  return files->WriteAtomic(path, LocalMachinesFile(cpus, memory_bytes));
}

}  // namespace

LocalCluster::LocalCluster(LocalClusterOptions options, LocalLayout layout)
    : options_(std::move(options)),
      layout_(std::move(layout)),
      processes_(layout_) {}

LocalCluster::~LocalCluster() = default;

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Make(
    const LocalClusterOptions& options) {
  LocalClusterOptions checked = options;
  if (checked.dir.empty()) {
    return InvalidArgument("a local cluster needs a directory");
  }
  if (checked.bin_dir.empty()) checked.bin_dir = DefaultBinDir();
  LOCKSTEP_ASSIGN_OR_RETURN(checked.bin_dir, AbsolutePath(checked.bin_dir));
  LOCKSTEP_ASSIGN_OR_RETURN(checked.dir, AbsolutePath(checked.dir));
  while (checked.dir.size() > 1 && checked.dir.back() == '/') {
    checked.dir.pop_back();
  }
  LocalLayout layout{checked.dir};
  return std::unique_ptr<LocalCluster>(
      new LocalCluster(std::move(checked), std::move(layout)));
}

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Open(
    const LocalClusterOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto cluster, Make(options));
  LOCKSTEP_RETURN_IF_ERROR(cluster->ReadRecords());
  return cluster;
}

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const LocalClusterOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto cluster, Make(options));
  LOCKSTEP_RETURN_IF_ERROR(cluster->Up().status());
  return cluster;
}

Status LocalCluster::ReadRecords() {
  const auto text = RealFileSystem()->Read(layout_.ClusterFile());
  if (text.status().code() == StatusCode::kNotFound) {
    return NotFound(
        "there is no local cluster in {0}; `lockstep local up --dir {0}` "
        "makes one",
        layout_.dir);
  }
  if (!text.ok()) return text.status();
  auto record = DecodeCluster(*text);
  if (!record.ok()) return Annotate(record.status(), layout_.ClusterFile());
  record_ = *std::move(record);
  return processes_.Read();
}

StatusOr<std::vector<std::string>> LocalCluster::Up() {
  std::vector<std::string> started;
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(layout_.dir));
  {
    LOCKSTEP_ASSIGN_OR_RETURN(const Fd lock,
                              LockFile(layout_.LockFile(), kLockTimeout));
    const Status read = ReadRecords();
    if (!read.ok() && read.code() != StatusCode::kNotFound) return read;
    LOCKSTEP_ASSIGN_OR_RETURN(const ClusterRecord wanted,
                              WantedCluster(record_, options_, layout_));
    LOCKSTEP_RETURN_IF_ERROR(SetRecord(wanted));
    for (const std::string& daemon : DaemonNames(record_)) {
      if (processes_.Open(daemon).ok()) continue;
      LOCKSTEP_RETURN_IF_ERROR(StartLocked(daemon));
      started.push_back(daemon);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(WaitReady());
  return started;
}

Status LocalCluster::WaitReady() {
  return WaitUntilReady(*this, options_.ready_timeout, options_.stopped);
}

StatusOr<DownResult> LocalCluster::Down(const DownOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd lock,
                            LockFile(layout_.LockFile(), kLockTimeout));
  LOCKSTEP_RETURN_IF_ERROR(ReadRecords());
  DownResult result;
  if (processes_.Open(kCoordinator).ok()) {
    // If it does not answer, the tasks are killed below.
    const auto cancelled =
        CancelAllJobs(client_options(), options.job_patience);
    if (cancelled.ok()) result.cancelled_jobs = *cancelled;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      result.daemons, processes_.Stop(DaemonNames(record_), options.grace));
  LOCKSTEP_ASSIGN_OR_RETURN(
      result.killed_tasks,
      KillLeftovers({layout_.dir, record_.runtime_dir}, kLeftoverTimeout));
  LOCKSTEP_RETURN_IF_ERROR(processes_.Clear());
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(record_.runtime_dir));
  if (options.clean) {
    LOCKSTEP_RETURN_IF_ERROR(RemoveClusterFiles(layout_, record_));
  }
  return result;
}

Status LocalCluster::SetRecord(const ClusterRecord& record) {
  if (record == record_) return OkStatus();
  for (const DaemonStatus& daemon : Daemons()) {
    if (daemon.running) {
      return FailedPrecondition(
          "the cluster in {0} runs with other settings; `lockstep local down "
          "--dir {0}` first, then `up` with these",
          layout_.dir);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      layout_.ClusterFile(), EncodeCluster(record)));
  record_ = record;
  return OkStatus();
}

Status LocalCluster::StartLocked(const std::string& daemon) {
  FileSystem* const files = RealFileSystem();
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(layout_.DaemonDir(daemon), 0700));
  LOCKSTEP_RETURN_IF_ERROR(MakePrivateDir(record_.runtime_dir));
  if (daemon != kCoordinator) {
    LOCKSTEP_RETURN_IF_ERROR(
        MakePrivateDir(JoinPath(record_.runtime_dir, daemon)));
  }
  if (!record_.insecure_loopback) {
    LOCKSTEP_RETURN_IF_ERROR(MakeCertificates(layout_, record_, options_.user,
                                              SystemClock().Now().wall));
  }
  if (daemon == kCoordinator && !record_.workers.empty()) {
    double cpus = record_.workers[0].share.cpus;
    int64_t memory = record_.workers[0].share.memory_bytes;
    for (const WorkerRecord& worker : record_.workers) {
      cpus = std::min(cpus, worker.share.cpus);
      memory = std::min(memory, worker.share.memory_bytes);
    }
    LOCKSTEP_RETURN_IF_ERROR(
        WriteMachines(layout_.MachinesFile(), cpus, memory));
  }
  for (const uint16_t port : DaemonPorts(record_, daemon)) {
    if (PortIsFree(port)) continue;
    return FailedPrecondition(
        "port {} of {} is used by another program; stop that, or `lockstep "
        "local down --clean` to start over with other ports",
        port, daemon);
  }
  std::vector<std::string> extra;
  for (const std::string& key : {std::string(), daemon}) {
    const auto it = options_.extra_arguments.find(key);
    if (it == options_.extra_arguments.end()) continue;
    extra.insert(extra.end(), it->second.begin(), it->second.end());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      Process process,
      SpawnDaemon(layout_, record_, options_.bin_dir, extra, daemon));
  return processes_.Add(daemon, std::move(process));
}

Status LocalCluster::StartDaemon(const std::string& daemon) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd lock,
                            LockFile(layout_.LockFile(), kLockTimeout));
  LOCKSTEP_RETURN_IF_ERROR(ReadRecords());
  if (processes_.Open(daemon).ok()) return OkStatus();
  return StartLocked(daemon);
}

Status LocalCluster::Restart(const std::string& daemon) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  if (auto process = processes_.Open(daemon); process.ok()) {
    LOCKSTEP_RETURN_IF_ERROR(StopProcess(*process, kStopGrace).status());
  }
  LOCKSTEP_RETURN_IF_ERROR(StartDaemon(daemon));
  return WaitReady();
}

Status LocalCluster::Kill(const std::string& daemon, int signal) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  const auto process = processes_.Open(daemon);
  if (!process.ok()) return FailedPrecondition("{} does not run", daemon);
  LOCKSTEP_RETURN_IF_ERROR(SendSignal(*process, signal));
  if (signal != SIGKILL) return OkStatus();
  return WaitEnded(daemon, kKillTimeout).status();
}

StatusOr<ProcessExit> LocalCluster::WaitEnded(const std::string& daemon,
                                              Duration timeout) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  return processes_.WaitEnded(daemon, timeout);
}

Status LocalCluster::CheckName(const std::string& daemon) const {
  const auto names = DaemonNames(record_);
  if (std::find(names.begin(), names.end(), daemon) != names.end()) {
    return OkStatus();
  }
  return InvalidArgument("the cluster has no daemon {}: it has {} to {}",
                         daemon, names.front(), names.back());
}

std::vector<DaemonStatus> LocalCluster::Daemons() const {
  std::vector<DaemonStatus> all;
  for (const std::string& name : DaemonNames(record_)) {
    DaemonStatus status;
    status.name = name;
    status.pid = Pid(name);
    status.running = status.pid != 0;
    if (name == kCoordinator) status.grpc = grpc_address();
    status.http = http_address(name).value_or("");
    status.directory = layout_.DaemonDir(name);
    status.log = layout_.Log(name);
    all.push_back(std::move(status));
  }
  return all;
}

pid_t LocalCluster::Pid(const std::string& daemon) const {
  return processes_.Pid(daemon);
}

std::string LocalCluster::grpc_address() const {
  return fmt::format("127.0.0.1:{}", record_.grpc_port);
}

std::string LocalCluster::http_token_file() const {
  return record_.http_token ? layout_.HttpTokenFile() : "";
}

StatusOr<std::string> LocalCluster::http_address(
    const std::string& daemon) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  return fmt::format("127.0.0.1:{}", DaemonPorts(record_, daemon).back());
}

ClientOptions LocalCluster::client_options() const {
  ClientOptions options;
  options.address = grpc_address();
  options.insecure_loopback = record_.insecure_loopback;
  if (!options.insecure_loopback) {
    options.ca = layout_.UserDir() + "/ca.crt";
    options.certificate = layout_.UserDir() + "/tls.crt";
    options.key = layout_.UserDir() + "/tls.key";
  }
  return options;
}

}  // namespace lockstep::cli
