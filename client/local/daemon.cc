#include "client/local/daemon.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/file.h"

namespace lockstep::cli {
namespace {

constexpr uint64_t kLogTail = 16 << 10;

std::string Loopback(uint16_t port) {
  return fmt::format("127.0.0.1:{}", port);
}

const WorkerRecord* FindWorker(const ClusterRecord& record,
                               std::string_view name) {
  for (const WorkerRecord& worker : record.workers) {
    if (worker.name == name) return &worker;
  }
  return nullptr;
}

void Add(std::vector<std::string>* args, const char* flag, std::string value) {
  args->push_back(flag);
  args->push_back(std::move(value));
}

// Replaces NAME=... or adds it.
void SetVariable(std::vector<std::string>* env, const std::string& name,
                 const std::string& value) {
  std::erase_if(*env, [&](const std::string& entry) {
    return entry.compare(0, name.size() + 1, name + "=") == 0;
  });
  env->push_back(name + "=" + value);
}

}  // namespace

StatusOr<std::vector<std::string>> DaemonArguments(const LocalLayout& layout,
                                                   const ClusterRecord& record,
                                                   std::string_view daemon) {
  std::vector<std::string> args;
  Add(&args, "--dir", layout.DaemonDir(daemon));
  if (daemon == kCoordinator) {
    Add(&args, "--listen", Loopback(record.grpc_port));
    Add(&args, "--http-listen", Loopback(record.http_port));
    Add(&args, "--cluster", record.cluster);
    Add(&args, "--machines-file", layout.MachinesFile());
    if (!record.prices.empty()) Add(&args, "--prices", record.prices);
  } else {
    const WorkerRecord* const worker = FindWorker(record, daemon);
    if (!worker) return InvalidArgument("the cluster has no daemon {}", daemon);
    Add(&args, "--runtime-dir", JoinPath(record.runtime_dir, daemon));
    Add(&args, "--coordinator", Loopback(record.grpc_port));
    Add(&args, "--node", worker->name);
    Add(&args, "--address", "127.0.0.1");
    Add(&args, "--http-address", Loopback(worker->http_port));
    Add(&args, "--cpus", fmt::format("{:g}", worker->share.cpus));
    Add(&args, "--memory", fmt::format("{}", worker->share.memory_bytes));
    Add(&args, "--gpus", fmt::format("{}", worker->share.gpus.size()));
    // In a container the cluster's user may be root.
    args.push_back("--container-root");
    // Ranks inherit the variables of the cluster's user.
    Add(&args, "--inherit", "*");
  }
  if (record.http_token) {
    Add(&args, "--http-token-file", layout.HttpTokenFile());
  }
  if (record.insecure_loopback) {
    args.push_back("--insecure-loopback");
  } else {
    const std::string tls = layout.TlsDir(daemon);
    Add(&args, "--ca", tls + "/ca.crt");
    Add(&args, "--cert", tls + "/tls.crt");
    Add(&args, "--key", tls + "/tls.key");
  }
  Add(&args, "--log-level", record.log_level);
  return args;
}

std::vector<std::string> DaemonEnvironment(std::vector<std::string> env,
                                           const std::string& bin_dir,
                                           const ClusterRecord& record,
                                           std::string_view daemon) {
  std::string path = bin_dir;
  for (const std::string& entry : env) {
    if (entry.compare(0, 5, "PATH=") == 0) path += ":" + entry.substr(5);
  }
  SetVariable(&env, "PATH", path);
  // Two daemons on one machine must not hand out the same GPU.
  const WorkerRecord* const worker = FindWorker(record, daemon);
  if (worker && !worker->share.gpus.empty() && record.workers.size() > 1) {
    SetVariable(&env, "CUDA_VISIBLE_DEVICES",
                fmt::format("{}", fmt::join(worker->share.gpus, ",")));
  }
  return env;
}

std::vector<uint16_t> DaemonPorts(const ClusterRecord& record,
                                  std::string_view daemon) {
  if (daemon == kCoordinator) return {record.grpc_port, record.http_port};
  const WorkerRecord* const worker = FindWorker(record, daemon);
  if (!worker) return {};
  return {worker->http_port};
}

std::vector<std::string> DaemonNames(const ClusterRecord& record) {
  std::vector<std::string> names = {kCoordinator};
  for (const WorkerRecord& worker : record.workers) {
    names.push_back(worker.name);
  }
  return names;
}

std::string DaemonProgram(std::string_view daemon) {
  return daemon == kCoordinator ? "lockstep-coordinator" : "lockstep-worker";
}

StatusOr<Process> SpawnDaemon(const LocalLayout& layout,
                              const ClusterRecord& record,
                              const std::string& bin_dir,
                              const std::vector<std::string>& extra_arguments,
                              std::string_view daemon) {
  SpawnOptions options;
  options.program = JoinPath(bin_dir, DaemonProgram(daemon));
  LOCKSTEP_ASSIGN_OR_RETURN(options.argv,
                            DaemonArguments(layout, record, daemon));
  options.argv.insert(options.argv.begin(), options.program);
  options.argv.insert(options.argv.end(), extra_arguments.begin(),
                      extra_arguments.end());
  options.env =
      DaemonEnvironment(CurrentEnvironment(), bin_dir, record, daemon);
  options.cwd = layout.DaemonDir(daemon);
  options.stdout_path = layout.Log(daemon);
  options.stderr_path = layout.Log(daemon);
  options.new_session = true;
  return Spawn(options);
}

pid_t EndpointPid(const LocalLayout& layout, std::string_view daemon) {
  const auto text = RealFileSystem()->Read(layout.Endpoint(daemon), 64 << 10);
  if (!text.ok()) return 0;
  const auto root = nlohmann::json::parse(*text, nullptr, false);
  if (!root.is_object()) return 0;
  const auto pid = root.find("pid");
  return pid != root.end() && pid->is_number_integer() ? pid->get<pid_t>() : 0;
}

std::string LastLogLine(const LocalLayout& layout, std::string_view daemon) {
  const std::string path = layout.Log(daemon);
  const auto info = RealFileSystem()->Stat(path);
  const auto file = RealFileSystem()->OpenRead(path);
  if (!info.ok() || !file.ok()) return "";
  const uint64_t size = std::min(info->size, kLogTail);
  std::string text(size, '\0');
  const auto got = (*file)->ReadAt(info->size - size, text.data(), size);
  if (!got.ok()) return "";
  text.resize(*got);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
    text.pop_back();
  }
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace lockstep::cli
