#include "worker/agent_flags.h"

#include <cstdio>
#include <iostream>

#include "common/base/logging.h"
#include "common/base/version.h"
#include "common/cli/command.h"
#include "common/config/config_file.h"
#include "common/model/names.h"

namespace lockstep::worker {
namespace {

// Checks that the parser does not make.
Status CheckFlags(const AgentFlags& flags) {
  LOCKSTEP_RETURN_IF_ERROR(
      Annotate(CheckLogLevel(flags.log_level), "--log-level"));
  if (!IsPoolName(flags.pool)) {
    return InvalidArgument(
        "--pool \"{}\" is not a pool name (at most 63 lower-case letters, "
        "digits or \"-\")",
        flags.pool);
  }
  LOCKSTEP_RETURN_IF_ERROR(agent::CheckInherit(flags.inherit));
  if (!flags.rank_cgroup.empty() &&
      (flags.rank_cgroup.front() != '/' || flags.rank_cgroup.back() == '/')) {
    return InvalidArgument(
        "--rank-cgroup {} is not a path as in /proc/PID/cgroup, such as "
        "/system.slice/lockstep-ranks.service",
        flags.rank_cgroup);
  }
  if (flags.py_spy != "auto" && flags.py_spy != "none" &&
      !flags.py_spy.starts_with('/')) {
    return InvalidArgument("--py-spy {} is not an absolute path, auto or none",
                           flags.py_spy);
  }
  if (!flags.insecure_loopback &&
      (flags.ca.empty() || flags.cert.empty() || flags.key.empty())) {
    return InvalidArgument(
        "give --ca, --cert and --key (or --insecure-loopback)");
  }
  return OkStatus();
}

// Where it is, and who.
void AddPlaceFlags(Command* command, AgentFlags* flags) {
  command->Add("--dir", &flags->dir, "Directory for state", Required);
  command->Add("--runtime-dir", &flags->runtime_dir,
               "Directory for sockets; must be short (default: DIR/run)");
  command->Add("--coordinator", &flags->coordinator,
               "HOST:PORT of the coordinator", Required);
  command->Add("--node", &flags->node,
               "Node name (default: the certificate's, else the host's)");
  command->Add("--address", &flags->address,
               "IP address at which other nodes reach this host's ranks "
               "(default: that of the route to the coordinator)");
  command->Add("--http-address", &flags->http_address,
               "HOST:PORT for /metrics and health; loopback only without TLS",
               ShowDefault);
  command->Add("--web-config", &flags->web_config,
               "web-config.yml of the HTTP port, as for Prometheus exporters: "
               "TLS, client certificates and passwords");
  command->Add("--http-token-file", &flags->http_token_file,
               "File with the token that the HTTP port requires, also on "
               "loopback; created if missing. Health needs no token");
  command->Add("--ca", &flags->ca, "PEM certificate of the cluster's CA");
  command->Add("--cert", &flags->cert, "PEM certificate of this node");
  command->Add("--key", &flags->key, "PEM key of this node");
  command->Add("--insecure-loopback", &flags->insecure_loopback,
               "Connect without TLS; only to a coordinator on loopback");
}

// Resources that the node offers.
void AddOfferFlags(Command* command, AgentFlags* flags) {
  command->Add("--cpus", &flags->cpus, "Cores to offer (default: all)",
               InRange(0.001, 65536.0));
  command->Add("--memory", &flags->memory,
               "Memory to offer, as bytes or 16GiB (default: all)", AsSize);
  command->Add("--gpus", &flags->gpus,
               "Number of GPUs to offer, from the first (default: all)",
               InRange(0, 4096));
  command->Add("--pool", &flags->pool,
               "Pool of this node; jobs and regions select nodes by pool",
               ShowDefault);
}

// How it runs ranks.
void AddTaskFlags(Command* command, AgentFlags* flags) {
  command->Add("--shim", &flags->shim,
               "Path of lockstep-shim (default: next to this program)");
  command->Add("--task-user", &flags->task_user,
               "User that runs ranks; needs root (default: the daemon's user)");
  command->Add(
      "--rank-cgroup", &flags->rank_cgroup,
      "Parent cgroup (v2) of ranks, such as "
      "/system.slice/lockstep-ranks.service (default: the daemon's cgroup)",
      OrVariable("LOCKSTEP_RANK_CGROUP"));
  command->Add(
      "--ports", &flags->ports,
      "Ports to lease to tasks, in this order, such as 27182,27190-27199 "
      "(default: all outside the kernel's ephemeral range)");
  command->Add(
      "--container-engine", &flags->container_engine,
      "Container engine: auto, podman, docker, a path to one of them, or none",
      ShowDefault);
  command->Add("--container-options", &flags->container_options,
               "Options of the engine's \"run\" for every container, such as "
               "--runtime=runc");
  command->Add("--container-root", &flags->container_root,
               "Allow containers without --task-user, where root in a "
               "container is root of this host");
  command->Add("--py-spy", &flags->py_spy,
               "py-spy for stacks of Python ranks: a path, none, or auto (of "
               "PATH, or of the rank's environment if it runs as this user)",
               ShowDefault);
  command->Add("--gpu-check", &flags->gpu_check,
               "lockstep-gpu-check for checks of GPUs: a path, none, or auto "
               "(beside lockstep-shim)",
               ShowDefault);
  command->Add("--exec", &flags->exec,
               "Whether users may enter ranks here (exec, forward, profile): "
               "on or off",
               OneOf({"on", "off"}), ShowDefault);
  command->Add("--package-cache", &flags->package_cache,
               "Size of the cache of unused packages", AsSize,
               WithDefault("20GiB"));
  command->Add("--first-sign-seconds", &flags->first_sign_seconds,
               "How long a program may show no sign of progress before its "
               "first, in seconds",
               InRange(1.0, 1e6), ShowDefault);
  command->Add(
      "--inherit", &flags->inherit,
      "Variables of the daemon that jobs may request: names, prefixes such as "
      "NCCL_*, or * (default: proxies, time zone and language)",
      SplitAt(','));
}

}  // namespace

bool ParseAgentFlags(int argc, char** argv, AgentFlags* flags, int* exit_code) {
  Command command("lockstep-worker", "Run the ranks of jobs on this host.",
                  "Example:\n"
                  "  lockstep-worker --dir /var/lib/lockstep/worker "
                  "--coordinator c.example:7443 \\\n"
                  "    --ca ca.crt --cert node.crt --key node.key");
  command.AddProgramFlags(
      {8, kVersion, "", {"lockstep(1)", "lockstep-coordinator(8)"}});
  AddPlaceFlags(&command, flags);
  AddOfferFlags(&command, flags);
  AddTaskFlags(&command, flags);
  command.Add("--nvml-library", &flags->nvml_library, "NVML library",
              ShowDefault);
  command.Add("--gpu-sample-seconds", &flags->gpu_sample_seconds,
              "Interval of GPU readings in seconds", InRange(0.1, 60.0),
              ShowDefault);
  command.Add("--log-level", &flags->log_level, "debug, info, warn or error",
              ShowDefault);
  command.Add("--allow-faults", &flags->allow_faults,
              "Fault points, for tests: NAME=crash@N,NAME=error@N");
  AddConfigFile(&command);
  const ParsedCommand parsed = Parse(command, argc, argv);
  if (!parsed.command) {
    *exit_code =
        parsed.Print(std::string(ErrorPrefix()) + "lockstep-worker: ",
                     " (see lockstep-worker --help)", std::cout, std::cerr);
    return false;
  }
  if (const Status status = CheckFlags(*flags); !status.ok()) {
    fprintf(stderr, "%slockstep-worker: %s\n",
            std::string(ErrorPrefix()).c_str(), Message(status).c_str());
    *exit_code = 2;
    return false;
  }
  return true;
}

}  // namespace lockstep::worker
