#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <ostream>

#include "client/cli/local_common.h"
#include "client/cli/parse.h"

namespace lockstep::cli {
namespace {

struct UpFlags {
  std::string dir;
  LocalClusterOptions cluster;
  std::string memory;
  std::string context = kLocalContext;
  bool no_context = false;
  double timeout_seconds = 30;
};

// A name for the certificate: [A-Za-z0-9][A-Za-z0-9._-]{0,62}.
std::string UserName(const CliEnvironment& env) {
  std::string name = env.Variable("USER").substr(0, 63);
  std::erase_if(name, [](unsigned char c) {
    return !isascii(c) || (!isalnum(c) && c != '-' && c != '_');
  });
  return name.empty() || !isalnum(static_cast<unsigned char>(name[0])) ? "local"
                                                                       : name;
}

ContextEntry EntryOf(const LocalCluster& cluster) {
  const ClientOptions options = cluster.client_options();
  return {options.address,           options.ca,
          options.certificate,       options.key,
          options.insecure_loopback, cluster.layout().dir};
}

StatusOr<int> RunUp(const Cli& cli, UpFlags options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(options.cluster.dir,
                            LocalDir(options.dir, options.context, *env));
  if (!options.memory.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(options.cluster.memory_bytes,
                              ParseBytes(options.memory));
  }
  options.cluster.user = UserName(*env);
  options.cluster.bin_dir = env->Variable("LOCKSTEP_BIN");
  if (options.cluster.bin_dir.empty()) {
    options.cluster.bin_dir = env->program_dir;
  }
  options.cluster.ready_timeout = Seconds(options.timeout_seconds);
  // If it existed before, Start would not report what it started.
  LOCKSTEP_ASSIGN_OR_RETURN(const auto cluster,
                            LocalCluster::Make(options.cluster));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> started,
                            cluster->Up());
  if (started.empty()) {
    *env->err << fmt::format("all daemons were running in {}\n",
                             cluster->layout().dir);
  } else {
    *env->err << fmt::format(
        "started {} in {}\n"
        "machine types of training jobs are scaled to this machine by {}\n",
        fmt::join(started, ", "), cluster->layout().dir,
        cluster->layout().MachinesFile());
  }
  if (const std::string token = cluster->http_token_file(); !token.empty()) {
    *env->err << fmt::format(
        "HTTP requires the token in {0}: for Prometheus authorization: "
        "{{type: Bearer, credentials_file: {0}}}, for a browser `lockstep ui "
        "--dir {1}`\n",
        token, cluster->layout().dir);
  }
  if (!options.no_context) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::string path,
        SaveContext(*env, options.context, EntryOf(*cluster)));
    *env->err << fmt::format("context {} written to {} and made current\n",
                             options.context, path);
  }
  LOCKSTEP_RETURN_IF_ERROR(WriteDaemons(cli, *cluster));
  return 0;
}

}  // namespace

Command LocalUpCommand(Cli* cli) {
  const auto options = std::make_shared<UpFlags>();
  Command command = LeafCommand(
      "up", "Start a cluster on this machine, or its stopped daemons",
      "  lockstep local up\n"
      "  lockstep local up --workers 4 --dir /tmp/cluster --no-context\n\n"
      "The machine's CPUs, memory and GPUs are divided between the workers.\n"
      "Ports are chosen once and kept; TLS is on, with the cluster's own\n"
      "CA, and HTTP requires the token in DIR/http-token. A second run\n"
      "starts stopped daemons and leaves the rest.");
  LocalClusterOptions* const c = &options->cluster;
  command.Add("--workers", &c->workers, "Worker daemons (default: 2)");
  AddLocalDirOption(&command, &options->dir);
  command.Add("--cpus", &c->cpus,
              "CPUs of all workers together (default: this machine's)");
  command.Add("--memory SIZE", &options->memory,
              "Memory of all workers together, as 8GiB");
  command.Add("--gpus", &c->gpus, "GPUs of all workers together");
  command.Add("--prices FILE", &c->prices, "Price table for the coordinator");
  command.Add("--log-level", &c->log_level, "debug, info, warn or error");
  command.Add("--context-name", &options->context,
              "Name of the written context", ShowDefault);
  command.Add("--no-context", &options->no_context, "Write no context");
  command.Add("--timeout", &options->timeout_seconds,
              "Seconds until all must be ready", AtLeast(1), ShowDefault);
  AddOutputOption(&command, cli);
  command.run = [=] { return RunUp(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
