#include "worker/agent_flags.h"

#include <cstdio>
#include <iostream>

#include "common/base/logging.h"
#include "common/base/version.h"
#include "common/cli/command.h"
#include "common/config/config_file.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

// What the parser does not see.
Status CheckFlags(const AgentFlags& flags) {
  LOCKSTEP_RETURN_IF_ERROR(
      Annotate(CheckLogLevel(flags.log_level), "--log_level"));
  if (!IsPoolName(flags.pool)) {
    return InvalidArgument(
        "--pool \"{}\" is no name of a pool (at most 63 lower-case letters, "
        "digits or \"-\")",
        flags.pool);
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckInherit(flags.inherit));
  if (!flags.rank_cgroup.empty() &&
      (flags.rank_cgroup.front() != '/' || flags.rank_cgroup.back() == '/')) {
    return InvalidArgument(
        "--rank_cgroup {} is not a path as in /proc/PID/cgroup, such as "
        "/system.slice/lockstep-ranks.service",
        flags.rank_cgroup);
  }
  if (!flags.insecure_loopback &&
      (flags.ca.empty() || flags.cert.empty() || flags.key.empty())) {
    return InvalidArgument(
        "give --ca, --cert and --key (or --insecure_loopback)");
  }
  return OkStatus();
}

// Where it is, and who.
void AddPlaceFlags(Command* command, AgentFlags* flags) {
  command->Add("--dir", &flags->dir, "Directory of its state", Required);
  command->Add("--runtime_dir", &flags->runtime_dir,
               "Directory of its sockets; short (DIR/run)");
  command->Add("--coordinator", &flags->coordinator,
               "HOST:PORT of the coordinator", Required);
  command->Add("--node", &flags->node,
               "Name of this node (the certificate's, else the host's)");
  command->Add("--address", &flags->address,
               "IP address that other nodes' ranks reach this host's by (the "
               "one that leads to the coordinator)");
  command->Add("--http_address", &flags->http_address,
               "HOST:PORT for /metrics and health; loopback unless TLS",
               ShowDefault);
  command->Add("--web_config", &flags->web_config,
               "TLS, client certificates and passwords of the HTTP port: a "
               "web-config.yml as Prometheus's exporters take");
  command->Add("--http_token_file", &flags->http_token_file,
               "File with the token that the HTTP port asks for, on loopback "
               "too; made if it is missing. Health is for everybody");
  command->Add("--ca", &flags->ca, "PEM certificate of the cluster's CA");
  command->Add("--cert", &flags->cert, "PEM certificate of this node");
  command->Add("--key", &flags->key, "PEM key of this node");
  command->Add("--insecure_loopback", &flags->insecure_loopback,
               "No TLS; only to a coordinator on loopback");
}

// What it offers.
void AddOfferFlags(Command* command, AgentFlags* flags) {
  command->Add("--cpus", &flags->cpus, "Cores offered (all)",
               InRange(0.001, 65536.0));
  command->Add("--memory", &flags->memory,
               "Memory offered: bytes, or 16GiB (all)", AsSize);
  command->Add("--gpus", &flags->gpus, "GPUs offered, the first so many (all)",
               InRange(0, 4096));
  command->Add("--pool", &flags->pool,
               "Group of nodes that a job or a region may ask for",
               ShowDefault);
}

// How it runs ranks.
void AddTaskFlags(Command* command, AgentFlags* flags) {
  command->Add("--shim", &flags->shim,
               "Path of lockstep-shim (beside this program)");
  command->Add("--task_user", &flags->task_user,
               "User that ranks run as; needs root (the daemon's own)");
  command->Add("--rank_cgroup", &flags->rank_cgroup,
               "Cgroup (v2) that another program keeps for ranks, such as "
               "/system.slice/lockstep-ranks.service (the daemon's own)",
               OrVariable("LOCKSTEP_RANK_CGROUP"));
  command->Add(
      "--ports", &flags->ports,
      "Ports that tasks are given, the first free ones in this order, as "
      "27182,27190-27199 (any outside the kernel's ephemeral range)");
  command->Add("--container_engine", &flags->container_engine,
               "What runs containers: auto, podman, docker, the path of one of "
               "them, or none",
               ShowDefault);
  command->Add("--container_options", &flags->container_options,
               "Options of its \"run\" for every container, as --runtime=runc");
  command->Add("--container_root", &flags->container_root,
               "Without --task_user, root in a container is this host's root");
  command->Add("--package_cache", &flags->package_cache,
               "Bytes of jobs' packages that are kept when no job uses them",
               AsSize, WithDefault("20GiB"));
  command->Add(
      "--inherit", &flags->inherit,
      "Variables of the daemon that a job may ask for: names, NCCL_* for "
      "all that begin so, * for all (proxies, time zone and language)",
      SplitAt(','));
}

}  // namespace

bool ParseAgentFlags(int argc, char** argv, AgentFlags* flags, int* exit_code) {
  Command command("lockstep-worker", "Runs the ranks of jobs on this host.",
                  "Example:\n"
                  "  lockstep-worker --dir /var/lib/lockstep/worker "
                  "--coordinator c.example:7443 \\\n"
                  "    --ca ca.crt --cert node.crt --key node.key");
  command.AddProgramFlags(
      {8, kVersion, "", {"lockstep(1)", "lockstep-coordinator(8)"}});
  AddPlaceFlags(&command, flags);
  AddOfferFlags(&command, flags);
  AddTaskFlags(&command, flags);
  command.Add("--nvml_library", &flags->nvml_library,
              "Library that knows the GPUs", ShowDefault);
  command.Add("--gpu_sample_seconds", &flags->gpu_sample_seconds,
              "How often the GPUs are read", InRange(0.1, 60.0), ShowDefault);
  command.Add("--log_level", &flags->log_level, "debug, info, warn or error",
              ShowDefault);
  command.Add("--allow_faults", &flags->allow_faults,
              "For tests: NAME=crash@N,NAME=error@N");
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

}  // namespace lockstep
