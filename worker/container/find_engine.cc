#include "worker/container/find_engine.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/file.h"
#include "common/base/random.h"
#include "worker/container/cli_engine.h"
#include "worker/container/command.h"
#include "worker/task/engine_words.h"

namespace lockstep::worker::container {
namespace {

// What lockstep-shim --limited exits with where it is not (worker/shim/init.h).
constexpr int kNotLimited = 9;
// Limit of one trial; the first one after a boot cleans up earlier leftovers.
constexpr Duration kTrialTime = std::chrono::seconds(10);

MonoTime Until(MonoTime deadline) {
  return std::min(deadline, MonotonicNow() + kTrialTime);
}

std::string ValueOf(const std::map<std::string, std::string>& environment,
                    const std::string& name) {
  const auto it = environment.find(name);
  return it == environment.end() ? std::string() : it->second;
}

// "" when there is none in PATH.
std::string InPath(const std::string& program, std::string path) {
  if (path.empty()) path = "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string file = JoinPath(path.substr(begin, end - begin), program);
    if (file.starts_with('/') && access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return std::string();
}

// The last word of the first line: "podman version 4.3.1".
std::string VersionIn(const std::string& output) {
  const std::string line = output.substr(0, output.find('\n'));
  const size_t space = line.rfind(' ');
  return space == std::string::npos ? line : line.substr(space + 1);
}

GpuAccess FindGpuAccess() {
  for (const char* dir : {"/etc/cdi", "/var/run/cdi"}) {
    const auto names = RealFileSystem()->List(dir);
    if (names.ok() && !names->empty()) return GpuAccess::kCdi;
  }
  return GpuAccess::kDeviceNodes;
}

// What containers' processes may have at most where we may not raise limits:
// engines ask for a million of each, else.
std::vector<std::string> Ulimits(uint64_t most_files, uint64_t most_processes) {
  rlimit files{};
  rlimit processes{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 ||
      getrlimit(RLIMIT_NPROC, &processes) != 0) {
    return {};
  }
  const uint64_t n = std::min<uint64_t>(files.rlim_max, most_files);
  const uint64_t p = std::min<uint64_t>(processes.rlim_max, most_processes);
  return {fmt::format("--ulimit=nofile={}:{}", n, n),
          fmt::format("--ulimit=nproc={}:{}", p, p)};
}

// Returns podman's defaults and known workarounds: lower limits if ours cannot
// be raised, and runc without cgroups v2, which crun requires. The host's
// properties decide the order, because each attempt takes time.
std::vector<std::vector<std::string>> Attempts(const std::string& path) {
  std::vector<std::vector<std::string>> limits = {
      {}, Ulimits(1 << 20, 32768), Ulimits(1024, 1000)};
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < (1 << 20)) {
    std::swap(limits[0], limits[1]);
  }
  const bool runc = !InPath("runc", path).empty();
  const bool unified = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
  std::vector<std::vector<std::string>> attempts;
  for (const bool with_runc : {!unified, unified}) {
    if (with_runc && !runc) continue;
    for (std::vector<std::string> limit : limits) {
      if (with_runc) limit.insert(limit.begin(), "--runtime=runc");
      attempts.push_back(std::move(limit));
    }
  }
  return attempts;
}

class Trial {
 public:
  Trial(const EngineOptions& options, EngineSetup setup)
      : options_(options),
        setup_(std::move(setup)),
        env_(ClientEnvironment(options.environment)) {}

  StatusOr<std::unique_ptr<ContainerEngine>> Run(MonoTime deadline) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const CommandResult version,
        RunCommand({{setup_.program, "--version"}, env_, {}}, Until(deadline)));
    if (!version.ok()) return Fail(version.last_error);
    // The client's version; the server's is still unknown.
    std::string number = VersionIn(version.output);
    if (setup_.kind == EngineKind::kDocker) {
      LOCKSTEP_ASSIGN_OR_RETURN(const CommandResult server,
                                RunCommand({{setup_.program, "version",
                                             "--format", "{{.Server.Version}}"},
                                            env_,
                                            {}},
                                           Until(deadline)));
      if (!server.ok()) return Fail(server.last_error);
      setup_.rootless = IsRootless(deadline);
      number = VersionIn(server.output);
      setup_.can_limit = options_.want_limits;
    } else {
      LOCKSTEP_RETURN_IF_ERROR(TryPodman(deadline));
    }
    return std::make_unique<CliEngine>(
        setup_,
        (setup_.kind == EngineKind::kPodman ? "podman " : "docker ") + number,
        env_);
  }

 private:
  Status Fail(const std::string& said) const {
    return Unavailable(
        "{} does not work here: {}", setup_.program,
        said.empty() ? "it printed no error" : task::EngineSentence(said));
  }

  // Of docker. Where it is not sure, it is not.
  bool IsRootless(MonoTime deadline) {
    const auto info = RunCommand(
        {{setup_.program, "info", "--format", "{{json .SecurityOptions}}"},
         env_,
         {}},
        Until(deadline));
    return info.ok() && info->ok() &&
           info->output.find("\"name=rootless\"") != std::string::npos;
  }

  Status TryPodman(MonoTime deadline) {
    LOCKSTEP_RETURN_IF_ERROR(MakeRoot());
    const std::vector<std::string> given = setup_.options;
    // The first trial fits the host best: its error is the most useful.
    Status first = OkStatus();
    for (const bool limited : {true, false}) {
      if (limited && !options_.want_limits) continue;
      for (const auto& attempt :
           Attempts(ValueOf(options_.environment, "PATH"))) {
        setup_.options = attempt;
        setup_.options.insert(setup_.options.end(), given.begin(), given.end());
        setup_.can_limit = limited;
        const Status status = RunOnce(deadline);
        if (status.ok() || status.code() == StatusCode::kDeadlineExceeded) {
          return status;
        }
        if (status.code() == StatusCode::kUnimplemented) break;
        if (first.ok()) first = status;
      }
    }
    return first;
  }

  Status MakeRoot() {
    FileSystem* files = RealFileSystem();
    for (const char* name : {"dev", "proc", "sys", "etc", "run"}) {
      LOCKSTEP_RETURN_IF_ERROR(
          files->MakeDirs(JoinPath(options_.directory, name), 0755));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string program,
                              files->Read(options_.init, 64 << 20));
    // Engines take no relative path.
    char* const real = realpath(options_.directory.c_str(), nullptr);
    if (real == nullptr) return ErrnoStatus(errno, options_.directory);
    root_ = real;
    free(real);
    return files->WriteAtomic(JoinPath(root_, "init"), program, 0755);
  }

  Status RunOnce(MonoTime deadline) {
    ContainerPlan plan;
    plan.name = ContainerName("trial", 0, 0, RandomHex(6));
    plan.image = root_;
    plan.args = {"/init", setup_.can_limit ? "--limited" : "--version"};
    if (setup_.can_limit) {
      plan.cpus = 1;
      plan.memory_bytes = 64 << 20;
    }
    EngineSetup setup = setup_;
    setup.init.clear();
    setup.options.push_back("--rm");
    setup.options.push_back("--rootfs");
    std::vector<std::string> argv = RunArguments(setup, plan);
    // Neither an image nor catatonit, which --init alone would need.
    std::erase(argv, "--pull=never");
    std::erase(argv, "--init");
    auto ran = RunCommand({argv, env_, {}}, Until(deadline));
    if (ran.ok() && ran->ok()) return OkStatus();
    if (ran.ok() && setup_.can_limit && ran->code == kNotLimited) {
      return Unimplemented("{} does not enforce limits on this host",
                           setup_.program);
    }
    (void)CliEngine(setup_, "", env_).Remove(plan.name, Until(deadline));
    return ran.ok() ? Fail(ran->last_error) : ran.status();
  }

  const EngineOptions& options_;
  EngineSetup setup_;
  const std::vector<std::string> env_;
  std::string root_;  // Absolute path of the trial.
};

}  // namespace

std::vector<std::string> ClientEnvironment(
    const std::map<std::string, std::string>& environment) {
  static constexpr std::string_view kNames[] = {"HOME",
                                                "PATH",
                                                "USER",
                                                "LOGNAME",
                                                "TMPDIR",
                                                "LANG",
                                                "TZ",
                                                "DBUS_SESSION_BUS_ADDRESS",
                                                "http_proxy",
                                                "https_proxy",
                                                "no_proxy",
                                                "HTTP_PROXY",
                                                "HTTPS_PROXY",
                                                "NO_PROXY",
                                                "ALL_PROXY",
                                                "all_proxy",
                                                "SSL_CERT_DIR",
                                                "SSL_CERT_FILE",
                                                "REGISTRY_AUTH_FILE"};
  static constexpr std::string_view kPrefixes[] = {
      "XDG_",         "CONTAINER_", "CONTAINERS_",
      "_CONTAINERS_", "DOCKER_",    "STORAGE_"};
  std::vector<std::string> env;
  for (const auto& [name, value] : environment) {
    const auto begins = [&](std::string_view p) { return name.starts_with(p); };
    if (std::find(std::begin(kNames), std::end(kNames), name) !=
            std::end(kNames) ||
        std::any_of(std::begin(kPrefixes), std::end(kPrefixes), begins)) {
      env.push_back(name + "=" + value);
    }
  }
  return env;
}

StatusOr<std::unique_ptr<ContainerEngine>> FindContainerEngine(
    const EngineOptions& options, MonoTime deadline) {
  const std::string path = ValueOf(options.environment, "PATH");
  Status last = NotFound("PATH has neither podman nor docker");
  for (const EngineKind kind : {EngineKind::kPodman, EngineKind::kDocker}) {
    const std::string name = kind == EngineKind::kPodman ? "podman" : "docker";
    EngineSetup setup;
    setup.kind = kind;
    setup.options = options.options;
    setup.init = options.init;
    setup.gpu_access = FindGpuAccess();
    if (options.engine == "auto" || options.engine == name) {
      setup.program = InPath(name, path);
    } else if (options.engine.starts_with('/') &&
               options.engine.substr(options.engine.rfind('/') + 1)
                   .starts_with(name)) {
      setup.program = options.engine;
    } else {
      continue;
    }
    if (setup.program.empty()) {
      if (options.engine == name) last = NotFound("PATH has no {}", name);
      continue;
    }
    auto engine = Trial(options, std::move(setup)).Run(deadline);
    if (engine.ok()) return engine;
    // Why podman does not work is worth more than that docker does not either.
    if (last.code() == StatusCode::kNotFound) last = engine.status();
  }
  return last;
}

}  // namespace lockstep::worker::container
