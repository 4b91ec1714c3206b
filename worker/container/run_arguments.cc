#include "worker/container/run_arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/model/image_name.h"

namespace lockstep::worker::container {
namespace {

// Engines read the file with a scanner that takes 64 KiB a line.
constexpr size_t kMaxVariable = 60 << 10;
// Where podman mounts the program of --init-path.
constexpr char kPodmanInit[] = "/run/podman-init";

bool FitsFile(const std::string& name, const std::string& value) {
  if (name.size() + value.size() > kMaxVariable) return false;
  if (name.starts_with('#')) return false;
  if (value.find_first_of("\n\r") != std::string::npos) return false;
  if (value.empty()) return true;
  return std::string_view("\"'`").find(value.front()) ==
             std::string_view::npos &&
         value.back() != '\\';
}

bool ChoosesUser(const std::vector<std::string>& options) {
  return std::any_of(
      options.begin(), options.end(), [](const std::string& option) {
        const std::string name = option.substr(0, option.find('='));
        return name == "--user" || name == "-u" || name == "--userns" ||
               name == "--uidmap" || name == "--subuidname";
      });
}

class Arguments {
 public:
  Arguments(const EngineSetup& setup, const ContainerPlan& plan)
      : setup_(setup), plan_(plan) {}

  std::vector<std::string> Make() {
    Add({setup_.program, "run", "--name", plan_.name});
    for (const auto& [name, value] : plan_.labels) {
      Add({"--label", name + "=" + value});
    }
    // The image is here: fetched before the start, which takes no time then.
    Add({"--pull=never", "--network=host"});
    Engine();
    Security();
    Limits();
    Gpus();
    for (const ContainerMount& mount : plan_.mounts) {
      const std::string& source =
          mount.source.empty() ? mount.path : mount.source;
      Add({"--volume",
           source + ":" + mount.path + (mount.read_only ? ":ro" : ":rw")});
    }
    if (!plan_.working_directory.empty()) {
      Add({"--workdir", plan_.working_directory});
    }
    Environment();
    for (const std::string& option : setup_.options) args_.push_back(option);
    Program();
    return std::move(args_);
  }

 private:
  bool podman() const { return setup_.kind == EngineKind::kPodman; }
  void Add(std::vector<std::string> more) {
    for (std::string& arg : more) args_.push_back(std::move(arg));
  }

  // What differs between engines.
  void Engine() {
    if (podman()) {
      // The program's output is the rank's pipe itself: no copy to be lost.
      Add({"--log-driver=passthrough", "--http-proxy=false"});
    } else {
      Add({"--log-driver=none"});
    }
    // As the first process of a PID namespace a program without a handler
    // would not notice SIGTERM, and orphans would stay zombies.
    if (podman() && !setup_.init.empty()) {
      Add({"--init", "--init-path", setup_.init, "--preserve-fds=1"});
    } else {
      Add({"--init"});
    }
  }

  void Security() {
    Add({"--security-opt=no-new-privileges"});
    // Where SELinux is on, the job's directories are not labelled for
    // containers, and are not ours to label.
    Add({"--security-opt=label=disable"});
    // As for any rank: before the daemons.
    Add({"--oom-score-adj=500"});
    if (!plan_.user || ChoosesUser(setup_.options)) return;
    Add({"--user", fmt::format("{}:{}", plan_.user->uid, plan_.user->gid)});
    for (const gid_t group : plan_.user->groups) {
      if (group != plan_.user->gid) {
        Add({"--group-add", std::to_string(group)});
      }
    }
    if (plan_.user->uid != 0) Add({"--cap-drop=all"});
  }

  void Limits() {
    if (plan_.shm_bytes > 0) {
      Add({fmt::format("--shm-size={}", plan_.shm_bytes)});
    }
    if (!setup_.can_limit) return;
    if (plan_.cpus > 0) Add({fmt::format("--cpus={:.3f}", plan_.cpus)});
    if (plan_.memory_bytes > 0) {
      // No more with swap: what does not fit ends, as without a container.
      Add({fmt::format("--memory={}", plan_.memory_bytes),
           fmt::format("--memory-swap={}", plan_.memory_bytes)});
    }
  }

  void Gpus() {
    // Images of CUDA ask for all, and some hosts have a hook that obeys.
    if (podman()) Add({"--env", "NVIDIA_VISIBLE_DEVICES=void"});
    if (plan_.gpus.empty()) return;
    if (!podman()) {
      // A list with commas in one field, for docker's reader of CSV.
      return Add(
          {"--gpus", fmt::format("\"device={}\"", fmt::join(plan_.gpus, ","))});
    }
    const bool cdi = setup_.gpu_access == GpuAccess::kCdi;
    for (const int32_t gpu : plan_.gpus) {
      Add({"--device",
           fmt::format("{}{}", cdi ? "nvidia.com/gpu=" : "/dev/nvidia", gpu)});
    }
    if (!cdi)
      Add({"--device", "/dev/nvidiactl", "--device", "/dev/nvidia-uvm"});
  }

  void Environment() {
    if (!plan_.environment_file.empty()) {
      Add({"--env-file", plan_.environment_file});
    }
    for (const auto& [name, value] : plan_.environment) {
      if (!plan_.environment_file.empty() && FitsFile(name, value)) continue;
      Add({"--env", name + "=" + value});
    }
  }

  void Program() {
    if (!plan_.command.empty()) {
      // One that begins with "[" would be read as a JSON list.
      std::string entry = plan_.command[0];
      if (podman() && entry.starts_with('[')) {
        entry = nlohmann::json{entry}.dump();
      }
      Add({"--entrypoint", std::move(entry)});
    }
    Add({plan_.image});
    for (size_t i = 1; i < plan_.command.size(); ++i) Add({plan_.command[i]});
    for (const std::string& arg : plan_.args) Add({arg});
  }

  const EngineSetup& setup_;
  const ContainerPlan& plan_;
  std::vector<std::string> args_;
};

}  // namespace

std::string ContainerName(const std::string& job, uint64_t generation,
                          int32_t rank, const std::string& id) {
  return fmt::format("lockstep-{}-g{}-r{}-{}", job, generation, rank, id);
}

std::vector<std::string> RunArguments(const EngineSetup& setup,
                                      const ContainerPlan& plan) {
  return Arguments(setup, plan).Make();
}

std::vector<std::string> ExecArguments(const EngineSetup& setup,
                                       const ContainerCommand& command) {
  std::vector<std::string> args = {setup.program, "exec", "--interactive"};
  if (command.terminal) args.emplace_back("--tty");
  const bool keeps = setup.kind == EngineKind::kPodman && !setup.init.empty();
  if (keeps) args.emplace_back("--preserve-fds=1");
  for (const auto& [name, value] : command.environment) {
    args.insert(args.end(), {"--env", name + "=" + value});
  }
  args.push_back(command.container);
  if (keeps) args.insert(args.end(), {kPodmanInit, "--session", "--"});
  args.insert(args.end(), command.argv.begin(), command.argv.end());
  return args;
}

std::map<std::string, std::string> MountVariables(
    const std::vector<ContainerMount>& mounts) {
  std::map<std::string, std::string> variables;
  for (const ContainerMount& mount : mounts) {
    if (mount.inode == 0) continue;
    variables[fmt::format("LOCKSTEP_MOUNT_{}", variables.size())] =
        fmt::format("{}:{}:{}", mount.device, mount.inode, mount.path);
  }
  return variables;
}

std::string EnvironmentFile(
    const std::map<std::string, std::string>& environment) {
  std::string text;
  for (const auto& [name, value] : environment) {
    if (FitsFile(name, value)) text += name + "=" + value + "\n";
  }
  return text;
}

Status CheckPlan(const ContainerPlan& plan) {
  LOCKSTEP_RETURN_IF_ERROR(CheckImageName(plan.image));
  for (const ContainerMount& mount : plan.mounts) {
    if (mount.path.find(':') == std::string::npos &&
        mount.source.find(':') == std::string::npos) {
      continue;
    }
    return InvalidArgument(
        "cannot mount {} into a container: its path contains \":", mount.path);
  }
  return OkStatus();
}

}  // namespace lockstep::worker::container
