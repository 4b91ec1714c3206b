#include "client/local/local_cluster.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "client/local/certificates.h"
#include "client/local/daemon.h"
#include "client/local/lock.h"
#include "client/local/machines_table.h"
#include "client/local/ports.h"
#include "common/base/file.h"

namespace lockstep {
namespace {

constexpr Duration kStopGrace = std::chrono::seconds(10);
constexpr uint64_t kMaxMachinesFile = 1 << 20;

std::string DefaultBinDir() {
  if (const char* const dir = getenv("LOCKSTEP_BIN"); dir && *dir) return dir;
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof(self));
  const std::string path(self, std::max<ssize_t>(size, 0));
  return path.substr(0, path.rfind('/'));
}

// Unless somebody changed it.
Status WriteMachines(const std::string& path, double cpus,
                     int64_t memory_bytes) {
  FileSystem* const files = RealFileSystem();
  if (files->Exists(path)) {
    // What cannot be read, or is too long, is not ours.
    const auto before = files->Read(path, kMaxMachinesFile);
    if (!before.ok() || !IsOwnMachinesFile(*before)) return OkStatus();
  }
  return files->WriteAtomic(path, LocalMachinesFile(cpus, memory_bytes));
}

}  // namespace

LocalCluster::LocalCluster(LocalClusterOptions options, LocalLayout layout)
    : options_(std::move(options)), layout_(std::move(layout)) {}

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
  const auto read = [](const std::string& path) {
    return RealFileSystem()->Read(path);
  };
  auto text = read(layout_.ClusterFile());
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
  state_.clear();
  text = read(layout_.StateFile());
  if (text.status().code() == StatusCode::kNotFound) return OkStatus();
  if (!text.ok()) return text.status();
  auto state = DecodeState(*text);
  if (!state.ok()) return Annotate(state.status(), layout_.StateFile());
  state_ = *std::move(state);
  return OkStatus();
}

Status LocalCluster::WriteState() {
  return RealFileSystem()->WriteAtomic(layout_.StateFile(),
                                       EncodeState(state_));
}

StatusOr<std::vector<std::string>> LocalCluster::Up() {
  std::vector<std::string> started;
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(layout_.dir));
  {
    LOCKSTEP_ASSIGN_OR_RETURN(const Fd lock,
                              LockFile(layout_.LockFile(), kLockTimeout));
    const Status read = ReadRecords();
    if (!read.ok() && read.code() != StatusCode::kNotFound) return read;
    LOCKSTEP_ASSIGN_OR_RETURN(const ClusterRecord wanted, Wanted());
    LOCKSTEP_RETURN_IF_ERROR(Write(wanted));
    for (const std::string& daemon : DaemonNames()) {
      if (OpenDaemon(daemon).ok()) continue;
      LOCKSTEP_RETURN_IF_ERROR(StartLocked(daemon));
      started.push_back(daemon);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(WaitReady());
  return started;
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
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string boot_id, BootId());
  LOCKSTEP_ASSIGN_OR_RETURN(
      Process process,
      SpawnDaemon(layout_, record_, options_.bin_dir, extra, daemon));
  state_[daemon] = {process.id, boot_id};
  children_[daemon] = std::move(process);
  return WriteState();
}

Status LocalCluster::StartDaemon(const std::string& daemon) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd lock,
                            LockFile(layout_.LockFile(), kLockTimeout));
  LOCKSTEP_RETURN_IF_ERROR(ReadRecords());
  if (OpenDaemon(daemon).ok()) return OkStatus();
  return StartLocked(daemon);
}

Status LocalCluster::Restart(const std::string& daemon) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  if (auto process = OpenDaemon(daemon); process.ok()) {
    LOCKSTEP_RETURN_IF_ERROR(StopProcess(*process, kStopGrace).status());
  }
  LOCKSTEP_RETURN_IF_ERROR(StartDaemon(daemon));
  return WaitReady();
}

Status LocalCluster::Kill(const std::string& daemon, int signal) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  const auto process = OpenDaemon(daemon);
  if (!process.ok()) return FailedPrecondition("{} does not run", daemon);
  LOCKSTEP_RETURN_IF_ERROR(SendSignal(*process, signal));
  if (signal != SIGKILL) return OkStatus();
  return WaitEnded(daemon, kKillTimeout).status();
}

StatusOr<ProcessExit> LocalCluster::WaitEnded(const std::string& daemon,
                                              Duration timeout) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(daemon));
  const MonoTime deadline = MonotonicNow() + timeout;
  // A child is waited for by its own handle: that also reaps it.
  const auto child = children_.find(daemon);
  if (child != children_.end()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const ProcessExit exit,
                              WaitExit(child->second, deadline));
    children_.erase(child);
    return exit;
  }
  const auto process = OpenDaemon(daemon);
  if (!process.ok()) return ProcessExit{};
  return WaitExit(*process, deadline);
}

StatusOr<Process> LocalCluster::OpenDaemon(const std::string& daemon) const {
  const auto it = state_.find(daemon);
  if (it == state_.end()) return NotFound("{} was not started", daemon);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string boot_id, BootId());
  if (it->second.boot_id != boot_id) {
    return NotFound("{} was started before the last boot", daemon);
  }
  return OpenVerified(it->second.process);
}

std::vector<std::string> LocalCluster::DaemonNames() const {
  std::vector<std::string> names = {kCoordinator};
  for (const WorkerRecord& worker : record_.workers) {
    names.push_back(worker.name);
  }
  return names;
}

Status LocalCluster::CheckName(const std::string& daemon) const {
  const auto names = DaemonNames();
  if (std::find(names.begin(), names.end(), daemon) != names.end()) {
    return OkStatus();
  }
  return InvalidArgument("the cluster has no daemon {}: it has {} to {}",
                         daemon, names.front(), names.back());
}

std::vector<DaemonStatus> LocalCluster::Daemons() const {
  std::vector<DaemonStatus> all;
  for (const std::string& name : DaemonNames()) {
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
  const auto process = OpenDaemon(daemon);
  return process.ok() ? process->id.pid : 0;
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

}  // namespace lockstep
