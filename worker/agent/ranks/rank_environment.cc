#include "worker/agent/ranks/rank_environment.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/base/host_port.h"
#include "common/model/cluster_spec.h"
#include "common/model/names.h"
#include "worker/agent/core/local_gang.h"
#include "worker/evidence/flight_recorder.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::agent {
namespace {

// Variables of the host that a program may need; none describes the daemon or
// how its libraries are loaded.
constexpr const char* kInherited[] = {
    "HOME", "HOSTNAME", "LANG",   "LANGUAGE", "LOGNAME",
    "PATH", "SHELL",    "TMPDIR", "TZ",       "USER"};

// Variables that no job inherits: they control how the daemon's libraries are
// loaded, or come from systemd.
constexpr const char* kNeverInherited[] = {"CREDENTIALS_DIRECTORY",
                                           "LISTEN_FDNAMES", "LISTEN_FDS",
                                           "LISTEN_PID", "NOTIFY_SOCKET"};

// Variables of the host's owner for native ranks: where the libraries are that
// the engine opens.
constexpr const char* kEngineLibraries[] = {"LOCKSTEP_MODULE_DIR",
                                            "LOCKSTEP_NCCL_LIBRARY"};

template <typename Names>
bool IsOneOf(const std::string& name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool IsInherited(const std::string& name) {
  return name.starts_with("LC_") || IsOneOf(name, kInherited);
}

bool Matches(std::string_view name, std::string_view pattern) {
  if (!pattern.ends_with('*')) return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool MayBeInherited(const std::string& name,
                    const std::vector<std::string>& patterns) {
  return !name.starts_with("LD_") && !name.starts_with("LOCKSTEP_") &&
         !IsOneOf(name, kNeverInherited) &&
         std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) {
                       return Matches(name, pattern);
                     });
}

Environment Inherited(const RankEnvironmentInput& input) {
  Environment env;
  const auto& asked = input.assignment->spec->inherited_environment;
  for (const auto& [name, value] : input.daemon) {
    if (IsInherited(name) ||
        (IsOneOf(name, asked) && MayBeInherited(name, input.inherit))) {
      env[name] = value;
    }
  }
  env.try_emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  if (!input.home.empty()) env["HOME"] = input.home;
  return env;
}

// Defaults that the job's own variables override.
void PutDefaults(const RankEnvironmentInput& input, Environment* env) {
  (*env)["PYTHONUNBUFFERED"] = std::string("1");
  // As many threads as cores: two ranks with two each on two cores thrash.
  if (const double cpus = CpusPerRank(*input.task); cpus > 0) {
    const std::string threads = std::to_string(
        std::max<int64_t>(1, static_cast<int64_t>(std::floor(cpus))));
    (*env)["OMP_NUM_THREADS"] = threads;
    (*env)["OPENBLAS_NUM_THREADS"] = threads;
  }
  if (!input.data_interface.empty()) {
    (*env)["GLOO_SOCKET_IFNAME"] = input.data_interface;
    // "=": this very name; without it, all that begin so.
    (*env)["NCCL_SOCKET_IFNAME"] = "=" + input.data_interface;
  }
  // Indices are those of NVML, which counts by bus; CUDA by itself puts the
  // fastest first.
  (*env)["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  const auto& tasks = input.assignment->cluster->tasks;
  const bool has_ps = std::any_of(
      tasks.begin(), tasks.end(),
      [](const TaskSpec& task) { return task.type == TaskType::kPs; });
  if (has_ps && (input.task->type == TaskType::kPs ||
                 input.task->type == TaskType::kWorker)) {
    // Makes TensorFlow's servers report lost peers.
    (*env)["GRPC_FAIL_FAST"] = "use_caller";
  }
}

std::string Join(const std::vector<int32_t>& numbers) {
  std::string text;
  for (const int32_t number : numbers) {
    if (!text.empty()) text += ',';
    text += std::to_string(number);
  }
  return text;
}

// In the order of the task's ranks.
std::vector<int32_t> GpusOfTask(const RankEnvironmentInput& input) {
  std::vector<int32_t> gpus;
  for (const RankSpec& rank : input.task->ranks) {
    const auto own = GpusOfRank(*input.assignment, rank.rank);
    gpus.insert(gpus.end(), own.begin(), own.end());
  }
  return gpus;
}

void PutTorchelastic(const RankEnvironmentInput& input, Environment* env) {
  if (!input.error_file.empty()) {
    (*env)["TORCHELASTIC_ERROR_FILE"] = input.error_file;
  }
  if (!env->contains("TORCHELASTIC_RUN_ID")) return;  // Of no group.
  const GangSpec& spec = *input.assignment->spec;
  (*env)["TORCHELASTIC_RESTART_COUNT"] =
      std::to_string(spec.restart_count + input.task->restarts);
  (*env)["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(spec.restart_budget);
}

// A job that names its own files keeps them.
void PutFlightRecorder(const RankEnvironmentInput& input, Environment* env) {
  if (input.flight_directory.empty()) return;
  for (const char* const name :
       {evidence::kFlightPipeVariable, evidence::kFlightDumpVariable,
        "TORCH_FR_DUMP_TEMP_FILE"}) {
    if (env->contains(name)) return;
  }
  (*env)[evidence::kFlightPipeVariable] =
      evidence::FlightPipePrefix(input.flight_directory);
  (*env)[evidence::kFlightDumpVariable] =
      evidence::FlightDumpPrefix(input.flight_directory);
}

// Keeps connections within the gang off a proxy: gRPC of TensorFlow and JAX
// would use it.
void KeepProxiesOffTheCluster(const ClusterSpec& cluster, Environment* env) {
  constexpr const char* kProxies[] = {
      "http_proxy", "https_proxy", "all_proxy", "grpc_proxy",
      "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"};
  const bool any =
      std::any_of(std::begin(kProxies), std::end(kProxies),
                  [env](const char* name) { return env->contains(name); });
  if (!any) return;
  std::set<std::string> hosts = {"localhost", "127.0.0.1"};
  for (const TaskSpec& task : cluster.tasks) {
    if (const auto at = ParseHostPort(task.address); at.ok()) {
      hosts.insert(at->host);
    }
  }
  std::string list;
  for (const std::string& host : hosts) list += "," + host;
  for (const char* name : {"no_proxy", "NO_PROXY"}) {
    std::string value = (*env)[name];
    if (value == "*") continue;
    value += value.empty() ? list.substr(1) : list;
    if (value.size() < task::kMaxArgBytes / 2) (*env)[name] = value;
  }
}

}  // namespace

std::vector<std::string> DefaultInherit() {
  return {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
          "http_proxy", "https_proxy", "no_proxy", "all_proxy",
          "TZ",         "LANG",        "LC_*"};
}

Status CheckInherit(const std::vector<std::string>& inherit) {
  for (const std::string& pattern : inherit) {
    const std::string name =
        pattern.substr(0, pattern.size() - (pattern.ends_with('*') ? 1 : 0));
    if (pattern == "*" || IsEnvironmentName(name)) continue;
    return InvalidArgument(
        "--inherit {}: not the name of a variable; use a name such as "
        "HTTPS_PROXY, a prefix such as NCCL_*, or * for all",
        pattern);
  }
  return OkStatus();
}

Environment MakeRankEnvironment(const RankEnvironmentInput& input) {
  const Assignment& assignment = *input.assignment;
  Environment env = Inherited(input);
  PutDefaults(input, &env);
  for (const auto& [name, value] : input.task->environment) env[name] = value;

  // A rank on a host with GPUs sees only its own; "" hides all.
  const bool native = assignment.spec->kind == JobKind::kNative;
  env["CUDA_VISIBLE_DEVICES"] =
      Join(native ? GpusOfRank(assignment, input.rank) : GpusOfTask(input));
  for (auto& [name, value] : RankEnvironment(*assignment.cluster, input.rank)) {
    // Of these a job may know better.
    if (name.starts_with("OMPI_") && input.task->environment.contains(name)) {
      continue;
    }
    env[name] = std::move(value);
  }
  PutTorchelastic(input, &env);
  PutFlightRecorder(input, &env);
  KeepProxiesOffTheCluster(*assignment.cluster, &env);
  env["LOCKSTEP_JOB"] = assignment.job;
  env["LOCKSTEP_GENERATION"] = std::to_string(assignment.generation);
  env["LOCKSTEP_RANK"] = std::to_string(input.rank);
  if (!assignment.spec->output_directory.empty()) {
    env["LOCKSTEP_OUTPUT_DIRECTORY"] = assignment.spec->output_directory;
  }
  if (!input.link_file.empty()) env["LOCKSTEP_LINK_FILE"] = input.link_file;
  if (!input.link.empty()) {
    env["LOCKSTEP_LINK"] = input.link;
    env["LOCKSTEP_NONCE_FD"] = std::to_string(input.nonce_fd);
    for (const char* const name : kEngineLibraries) {
      const auto it = input.daemon.find(name);
      if (it != input.daemon.end()) env[name] = it->second;
    }
  }
  return env;
}

std::vector<std::string> ToStrings(const Environment& environment) {
  std::vector<std::string> strings;
  for (const auto& [name, value] : environment) {
    strings.push_back(name + "=" + value);
  }
  return strings;
}

Environment FromStrings(const std::vector<std::string>& strings) {
  Environment environment;
  for (const std::string& text : strings) {
    const size_t at = text.find('=');
    if (at == std::string::npos || at == 0) continue;
    environment.emplace(text.substr(0, at), text.substr(at + 1));
  }
  return environment;
}

}  // namespace lockstep::worker::agent
