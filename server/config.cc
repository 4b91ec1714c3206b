#include "server/config.h"

#include <yaml-cpp/yaml.h>

#include <cmath>
#include <iostream>
#include <map>

#include "common/base/logging.h"
#include "common/base/version.h"
#include "common/cli/command.h"
#include "common/config/config_file.h"
#include "server/page/grafana_link.h"
#include "server/store_commands.h"

namespace lockstep::server {
namespace {

// A century. Values meant as "never" may exceed a Duration.
constexpr double kForever = 36'525 * 86400.0;

StatusOr<double> Price(const std::string& path, const std::string& field,
                       const YAML::Node& node) {
  const double price = node.as<double>(std::nan(""));
  if (!std::isfinite(price) || price < 0) {
    return InvalidArgument("{}:{}: {} must be a price of 0 or more", path,
                           node.Mark().line + 1, field);
  }
  return price;
}

Status Read(const std::string& path, const YAML::Node& root, Prices* prices) {
  if (!root.IsMap()) return InvalidArgument("{}: not a price table", path);
  for (const auto& entry : root) {
    const auto field = entry.first.as<std::string>("");
    if (field == "currency") {
      prices->currency = entry.second.as<std::string>("");
      // A price table needs a currency.
      if (!entry.second.IsScalar() || prices->currency.empty()) {
        return InvalidArgument("{}:{}: currency must be a name such as USD",
                               path, entry.second.Mark().line + 1);
      }
    } else if (field == "core_hour") {
      LOCKSTEP_ASSIGN_OR_RETURN(prices->core_hour,
                                Price(path, field, entry.second));
    } else if (field == "gpu_hour") {
      LOCKSTEP_ASSIGN_OR_RETURN(prices->gpu_hour,
                                Price(path, field, entry.second));
    } else if (field == "gpu_hours" && entry.second.IsMap()) {
      for (const auto& gpu : entry.second) {
        const auto model = gpu.first.as<std::string>("");
        LOCKSTEP_ASSIGN_OR_RETURN(
            prices->gpu_hours[model],
            Price(path, "gpu_hours." + model, gpu.second));
      }
    } else {
      return InvalidArgument(
          "{}:{}: there is no field {}; known: currency, core_hour, gpu_hour, "
          "gpu_hours (a map)",
          path, entry.first.Mark().line + 1, field);
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<Prices> LoadPrices(const std::string& path) {
  Prices prices;
  try {
    LOCKSTEP_RETURN_IF_ERROR(Read(path, YAML::LoadFile(path), &prices));
  } catch (const YAML::BadFile&) {
    return NotFound("the price table {} cannot be read", path);
  } catch (const YAML::Exception& e) {
    return InvalidArgument("{}: {}", path, e.what());
  }
  return prices;
}

bool ParseFlags(int argc, char** argv, Config* config, int* exit_code) {
  Command command(
      "lockstep-coordinator",
      "The coordinator of a lockstep cluster: queues and places jobs, drives "
      "worker daemons, answers clients.\nExample: lockstep-coordinator --dir "
      "/var/lib/lockstep --listen 0.0.0.0:7443 --ca ca.crt --cert tls.crt "
      "--key tls.key",
      kStoreCommandsHelp);
  command.AddProgramFlags(
      {8, kVersion, "", {"lockstep(1)", "lockstep-worker(8)"}});
  command.Add("--dir", &config->dir, "State directory: store and logs",
              Required);
  command.Add("--listen", &config->listen,
              "HOST:PORT for gRPC; port 0 takes a free one", ShowDefault);
  command.Add(
      "--http-listen", &config->http_listen,
      "HOST:PORT for the status page, /metrics, /sd and health; loopback "
      "unless TLS",
      ShowDefault);
  command.Add("--web-config", &config->web_config,
              "TLS, client certificates and passwords of the HTTP port: a "
              "web-config.yml of Prometheus's exporters");
  command.Add("--http-token-file", &config->http_token_file,
              "File with the token that the HTTP port requires, on loopback "
              "too; created if missing. Health checks need no token");
  command.Add(
      "--grafana-url", &config->grafana_url,
      "Address of a job's dashboard in Grafana, to which the job's page "
      "links: with {job}, and {cluster}, {from} and {to} if wanted",
      Checked(GrafanaUrlFault));
  command.Add("--ca", &config->ca, "PEM certificate of the cluster's CA");
  command.Add("--cert", &config->cert, "PEM certificate of this coordinator");
  command.Add("--key", &config->key, "PEM key of this coordinator");
  command.Add("--insecure-loopback", &config->insecure_loopback,
              "No TLS: every user of this machine has all rights; rejected on "
              "any address except loopback");
  command.Add("--cluster", &config->cluster,
              "Name of the cluster, as in its certificates", ShowDefault);
  command.Add("--prices", &config->prices_file,
              "Price table (YAML); reloaded on SIGHUP");
  command.Add("--max-submitter-priority", &config->max_submitter_priority,
              "Highest priority that users with the role submitter may set, 0 "
              "to 1000; admins may set any",
              InRange(0, 1000), ShowDefault);
  command.Add("--max-user-jobs", &config->max_user_jobs,
              "Maximum number of unfinished jobs of one user", NotNegative,
              ShowDefault);
  command.Add("--max-user-job-bytes", &config->max_user_job_bytes,
              "Maximum bytes of arguments, variables and other texts in these",
              AsSize, NotNegative, WithDefault("64MiB"));
  const std::string more = " that a new node may have without approval";
  command.Add("--max-node-cpus", &config->max_node_cpus, "Cores" + more,
              InRange(0.0, 65536.0), ShowDefault);
  command.Add("--max-node-memory", &config->max_node_memory,
              "Bytes of memory" + more, InRange(uint64_t{0}, uint64_t{1} << 60),
              AsSize, NotNegative, WithDefault("16TiB"));
  command.Add("--max-node-gpus", &config->max_node_gpus, "GPUs" + more,
              InRange(0, 4096), ShowDefault);
  command.Add("--fatal-xids", &config->fatal_xids,
              "NVIDIA Xids after which a GPU gets no new work until its host "
              "boots or an operator undrains the node",
              SplitAt(','),
              WithDefault("46,48,54,62,64,74,79,95,109,110,119,120,136,140,143,"
                          "151,155,156,158"));
  command.Add("--node-lost-seconds", &config->node_lost_seconds,
              "How long the only silent host of a program may be silent before "
              "the program moves; its ranks end by themselves before",
              InRange(10.0, 86400.0), ShowDefault);
  command.Add(
      "--machines-file", &config->machines_file,
      "The site's machine types, runtimes, images and regions of training "
      "jobs (YAML); reloaded on SIGHUP");
  command.Add("--retain-jobs", &config->retain_jobs,
              "Delete ended jobs with their logs after this time: 30d, 12h",
              AsTime, NotNegative, WithDefault("30d"));
  command.Add("--retain-job-count", &config->retain_job_count,
              "Maximum number of ended jobs; the oldest are deleted",
              NotNegative, ShowDefault);
  command.Add("--retain-logs", &config->retain_logs,
              "Delete logs of ended jobs after this time: 30d, 12h", AsTime,
              NotNegative, WithDefault("30d"));
  command.Add("--retain-log-bytes", &config->retain_log_bytes,
              "Maximum bytes of logs; those of the job that ended first "
              "are deleted",
              AsSize, NotNegative, WithDefault("64GiB"));
  command.Add("--max-package-bytes", &config->max_package_bytes,
              "Maximum bytes of one code package", AsSize, NotNegative,
              WithDefault("2GiB"));
  command.Add("--package-quota", &config->package_quota,
              "Maximum bytes of packages of one user; those that no "
              "job needs are deleted after an hour",
              AsSize, NotNegative, WithDefault("20GiB"));
  command.Add("--package-reserve", &config->package_reserve,
              "Disk space in bytes that packages leave free", AsSize,
              NotNegative, WithDefault("1GiB"));
  command.Add("--max-file-bytes", &config->max_file_bytes,
              "Maximum bytes of one file of a task's working directory that "
              "`lockstep jobs cp` may read",
              AsSize, NotNegative, WithDefault("1GiB"));
  command.Add("--idle-notice", &config->idle_notice,
              "A job of which no rank works for this time gets the event IDLE; "
              "0s for never. A job may have a time of its own",
              AsTime, NotNegative, WithDefault("1h"));
  command.Add("--idle-stop", &config->idle_stop,
              "A job of which no rank works for this time is saved, where it "
              "can be, and cancelled; 0s for never",
              AsTime, NotNegative, WithDefault("0s"));
  command.Add(
      "--exec", &config->exec,
      "Users that may enter ranks (exec, forward, profile): on, the owner and "
      "admins; admins; off",
      OneOf({"on", "admins", "off"}), ShowDefault);
  command.Add(
      "--notify", &config->notify_file,
      "File of receivers (YAML) that are told by webhook, mail or "
      "command what happens to jobs, nodes and GPUs; reloaded on SIGHUP");
  command.Add("--notify-test", &config->notify_test,
              "Send a test to this receiver of --notify, and exit");
  command.Add("--backup-to", &config->backup_to,
              "Copy the store of --dir, which may be in use, to this new file "
              "and exit",  // A command, not a setting.
              NotInFile);
  command.Add("--backup-dir", &config->backup_dir,
              "Folder of the store's regular backups, best on another disk; "
              "default DIR/backups");
  command.Add("--backup-interval", &config->backup_interval,
              "Time between two backups of the store, 1s or more; 0s for none "
              "made",
              AsTime, NotNegative, WithDefault("1h"));
  command.Add("--backup-keep", &config->backup_keep,
              "Maximum number of backups; the oldest are deleted",
              InRange(1, 100'000), ShowDefault);
  command.Add("--audit-log", &config->audit_log,
              "Audit file, one JSON object per line; 64 MiB, and 8 "
              "older ones (default: DIR/audit.log)");
  command.Add("--log-level", &config->log_level, "debug, info, warn or error",
              OneOf({"debug", "info", "warn", "error"}), ShowDefault);
  command.Add("--allow-faults", &config->allow_faults,
              "For tests: NAME=crash@N,NAME=error@N");
  AddConfigFile(&command);
  const ParsedCommand parsed = Parse(command, argc, argv);
  if (!parsed.command) {
    *exit_code =
        parsed.Print(ErrorPrefix(), kRunWithHelp, std::cout, std::cerr);
    return false;
  }
  config->retain_jobs = std::fmin(config->retain_jobs, kForever);
  config->retain_logs = std::fmin(config->retain_logs, kForever);
  config->idle_notice = std::fmin(config->idle_notice, kForever);
  config->idle_stop = std::fmin(config->idle_stop, kForever);
  config->backup_interval = std::fmin(config->backup_interval, kForever);
  return true;
}

}  // namespace lockstep::server
