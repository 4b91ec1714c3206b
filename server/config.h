// The coordinator's flags as one validated struct.
#ifndef LOCKSTEP_SERVER_CONFIG_H_
#define LOCKSTEP_SERVER_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/core/bill.h"

namespace lockstep::server {

struct Config {
  // Holds store, logs and endpoint.json.
  std::string dir;
  // HOST:PORT; port 0 takes a free one.
  std::string listen = "127.0.0.1:7443";
  std::string http_listen = "127.0.0.1:7480";
  // TLS and passwords of the HTTP port. Empty for plain text without passwords.
  std::string web_config;
  // The file with the HTTP token. Empty for none.
  std::string http_token_file;
  // The address of a job's dashboard in Grafana, with {job} for its name. Empty
  // for no links.
  std::string grafana_url;
  std::string ca;
  std::string cert;
  std::string key;
  bool insecure_loopback = false;
  std::string cluster = "lockstep";
  // A YAML price table. Empty for the built-in one.
  std::string prices_file;
  // The site's table of machines, runtimes, images and regions. Empty for the
  // shipped one.
  std::string machines_file;
  // Limits of one code package, of all packages of one user, and the disk space
  // that uploads leave free.
  uint64_t max_package_bytes = uint64_t{2} << 30;
  uint64_t package_quota = uint64_t{20} << 30;
  uint64_t package_reserve = uint64_t{1} << 30;
  // Limit of a working directory's file that is read over the network.
  uint64_t max_file_bytes = uint64_t{1} << 30;
  // Retention of ended jobs and their logs in seconds, at most a century; the
  // number of jobs; the bytes of logs.
  double retain_jobs = 30 * 86400.0;
  uint64_t retain_job_count = 10'000;
  double retain_logs = 30 * 86400.0;
  uint64_t retain_log_bytes = uint64_t{64} << 30;
  // If not empty, the program copies the store to this file and exits.
  std::string backup_to;
  // Scheduled backups of the store: the folder (empty for DIR/backups), the
  // interval in seconds (0 for none), and the number to keep.
  std::string backup_dir;
  double backup_interval = 3600;
  uint64_t backup_keep = 24;
  // Limits of one user's unfinished jobs: their number, and the bytes of their
  // specs.
  uint64_t max_user_jobs = 10'000;
  uint64_t max_user_job_bytes = uint64_t{64} << 20;
  // The highest priority for users with the role submitter.
  int32_t max_submitter_priority = 0;
  // Resources of a new node that need no approval: cores, bytes, GPUs.
  double max_node_cpus = 1024;
  uint64_t max_node_memory = uint64_t{16} << 40;
  int32_t max_node_gpus = 16;
  // How long the host of a program may be silent before the program moves, in
  // seconds.
  double node_lost_seconds = 300;
  // NVIDIA Xids after which a GPU gets no new work.
  std::vector<int32_t> fatal_xids = {46,  48,  54,  62,  64,  74,  79,
                                     95,  109, 110, 119, 120, 136, 140,
                                     143, 151, 155, 156, 158};
  // The audit file. Empty for DIR/audit.log.
  std::string audit_log;
  // For jobs without times of their own, in seconds; 0 for never: when a job of
  // which no rank works is told, and when it is stopped.
  double idle_notice = 3600;
  double idle_stop = 0;
  // Users that may enter ranks: "on", those who may cancel the job;
  // "admins"; "off".
  std::string exec = "on";
  // The file of receivers of notifications. Empty for none.
  std::string notify_file;
  // If not empty, the program sends this receiver a test and exits.
  std::string notify_test;
  std::string log_level = "info";
  std::string allow_faults;

  Prices prices;
};

// Parses the command line. Returns false if the program must exit with
// *exit_code (0 or 2), after --help, --version or a usage error, whose text is
// printed.
bool ParseFlags(int argc, char** argv, Config* config, int* exit_code);

// A price table:
//   currency: EUR
//   core_hour: 0.04
//   gpu_hour: 0.30
//   gpu_hours: {T4: 0.35, V100: 2.48}
// InvalidArgument names file, line and field.
StatusOr<Prices> LoadPrices(const std::string& path);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CONFIG_H_
