#include "worker/agent_flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "common/base/logging.h"
#include "common/base/version.h"
#include "common/cli/man.h"
#include "common/config/config_file.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

// What CLI11 does not see.
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
void AddPlaceFlags(CLI::App* app, AgentFlags* flags) {
  app->add_option("--dir", flags->dir, "Directory of its state")->required();
  app->add_option("--runtime_dir", flags->runtime_dir,
                  "Directory of its sockets; short (DIR/run)");
  app->add_option("--coordinator", flags->coordinator,
                  "HOST:PORT of the coordinator")
      ->required();
  app->add_option("--node", flags->node,
                  "Name of this node (the certificate's, else the host's)");
  app->add_option(
      "--address", flags->address,
      "IP address that other nodes' ranks reach this host's by (the "
      "one that leads to the coordinator)");
  app->add_option("--http_address", flags->http_address,
                  "HOST:PORT for /metrics and health; loopback unless TLS")
      ->capture_default_str();
  app->add_option("--web_config", flags->web_config,
                  "TLS, client certificates and passwords of the HTTP port: a "
                  "web-config.yml as Prometheus's exporters take");
  app->add_option(
      "--http_token_file", flags->http_token_file,
      "File with the token that the HTTP port asks for, on loopback "
      "too; made if it is missing. Health is for everybody");
  app->add_option("--ca", flags->ca, "PEM certificate of the cluster's CA");
  app->add_option("--cert", flags->cert, "PEM certificate of this node");
  app->add_option("--key", flags->key, "PEM key of this node");
  app->add_flag("--insecure_loopback", flags->insecure_loopback,
                "No TLS; only to a coordinator on loopback");
}

// What it offers.
void AddOfferFlags(CLI::App* app, AgentFlags* flags) {
  app->add_option("--cpus", flags->cpus, "Cores offered (all)")
      ->check(CLI::Range(0.001, 65536.0));
  app->add_option("--memory", flags->memory,
                  "Memory offered: bytes, or 16GiB (all)")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--gpus", flags->gpus,
                  "GPUs offered, the first so many (all)")
      ->check(CLI::Range(0, 4096));
  app->add_option("--pool", flags->pool,
                  "Group of nodes that a job or a region may ask for")
      ->capture_default_str();
}

// How it runs ranks.
void AddTaskFlags(CLI::App* app, AgentFlags* flags) {
  app->add_option("--shim", flags->shim,
                  "Path of lockstep-shim (beside this program)");
  app->add_option("--task_user", flags->task_user,
                  "User that ranks run as; needs root (the daemon's own)");
  app->add_option("--rank_cgroup", flags->rank_cgroup,
                  "Cgroup (v2) that another program keeps for ranks, such as "
                  "/system.slice/lockstep-ranks.service (the daemon's own)")
      ->envname("LOCKSTEP_RANK_CGROUP");
  app->add_option("--ports", flags->ports,
                  "Ports that tasks are given, the first free ones in this "
                  "order, as 27182,27190-27199 (any outside the kernel's "
                  "ephemeral range)");
  app->add_option("--container_engine", flags->container_engine,
                  "What runs containers: auto, podman, docker, the path of one "
                  "of them, or none")
      ->capture_default_str();
  app->add_option("--container_options", flags->container_options,
                  "Options of its \"run\" for every container, as "
                  "--runtime=runc");
  app->add_flag("--container_root", flags->container_root,
                "Without --task_user, root in a container is this host's root");
  app->add_option("--package_cache", flags->package_cache,
                  "Bytes of jobs' packages that are kept when no job uses them")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->default_str("20GiB");
  app->add_option("--inherit", flags->inherit,
                  "Variables of the daemon that a job may ask for: names, "
                  "NCCL_* for all that begin so, * for all (proxies, time zone "
                  "and language)")
      ->delimiter(',');
}

}  // namespace

bool ParseAgentFlags(int argc, char** argv, AgentFlags* flags, int* exit_code) {
  CLI::App app{"Runs the ranks of jobs on this host.", "lockstep-worker"};
  app.set_version_flag("--version", std::string("lockstep-worker ") + kVersion);
  AddManOption(&app,
               {8, kVersion, "", {"lockstep(1)", "lockstep-coordinator(8)"}},
               &std::cout);
  app.footer(
      "Example:\n"
      "  lockstep-worker --dir /var/lib/lockstep/worker "
      "--coordinator c.example:7443 \\\n"
      "    --ca ca.crt --cert node.crt --key node.key");
  AddPlaceFlags(&app, flags);
  AddOfferFlags(&app, flags);
  AddTaskFlags(&app, flags);
  app.add_option("--nvml_library", flags->nvml_library,
                 "Library that knows the GPUs")
      ->capture_default_str();
  app.add_option("--gpu_sample_seconds", flags->gpu_sample_seconds,
                 "How often the GPUs are read")
      ->check(CLI::Range(0.1, 60.0))
      ->capture_default_str();
  app.add_option("--log_level", flags->log_level, "debug, info, warn or error")
      ->capture_default_str();
  app.add_option("--allow_faults", flags->allow_faults,
                 "For tests: NAME=crash@N,NAME=error@N");
  AddConfigFile(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      *exit_code = app.exit(e);  // Help or version, to stdout.
      return false;
    }
    fprintf(stderr, "%slockstep-worker: %s (see lockstep-worker --help)\n",
            std::string(ErrorPrefix()).c_str(), e.what());
    *exit_code = 2;
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
