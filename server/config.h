// The coordinator's flags, as one checked struct.
#ifndef LOCKSTEP_SERVER_CONFIG_H_
#define LOCKSTEP_SERVER_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/core/bill.h"

namespace lockstep {

struct Config {
  // Store, logs and endpoint.json.
  std::string dir;
  // HOST:PORT; port 0 takes a free one.
  std::string listen = "127.0.0.1:7443";
  std::string http_listen = "127.0.0.1:7480";
  // TLS and passwords of the HTTP port; empty: plain, everybody.
  std::string web_config;
  // Its token; empty: none.
  std::string http_token_file;
  std::string ca;
  std::string cert;
  std::string key;
  bool insecure_loopback = false;
  std::string cluster = "lockstep";
  // YAML price table; empty: the built-in one.
  std::string prices_file;
  // The site's table of machines, runtimes, images and regions; empty: the
  // shipped one.
  std::string machines_file;
  // Of one package of code, of all that one user brought, and what is left
  // free of the disk.
  uint64_t max_package_bytes = uint64_t{2} << 30;
  uint64_t package_quota = uint64_t{20} << 30;
  uint64_t package_reserve = uint64_t{1} << 30;
  // Of one file of a task's working directory that is read over the network.
  uint64_t max_file_bytes = uint64_t{1} << 30;
  // Ended jobs and their logs, in seconds, a century at most; the jobs' number;
  // the logs' bytes.
  double retain_jobs = 30 * 86400.0;
  uint64_t retain_job_count = 10'000;
  double retain_logs = 30 * 86400.0;
  uint64_t retain_log_bytes = uint64_t{64} << 30;
  // Not empty: copy the store to this file, and end.
  std::string backup_to;
  // Backups of the store while the coordinator runs: the folder (empty:
  // DIR/backups), seconds between two (0: none), and how many are kept.
  std::string backup_dir;
  double backup_interval = 3600;
  uint64_t backup_keep = 24;
  // Of one user, jobs that have not ended: how many, and bytes of their specs.
  uint64_t max_user_jobs = 10'000;
  uint64_t max_user_job_bytes = uint64_t{64} << 20;
  // The highest priority that a user with the role submitter may ask for.
  int32_t max_submitter_priority = 0;
  // Of one node that is new, what may be used without approval: cores, bytes,
  // GPUs.
  double max_node_cpus = 1024;
  uint64_t max_node_memory = uint64_t{16} << 40;
  int32_t max_node_gpus = 16;
  // NVIDIA's Xids after which a GPU gets no new work.
  std::vector<int32_t> fatal_xids = {48, 74, 79, 94, 95, 119, 120};
  // The audit record; empty: DIR/audit.log.
  std::string audit_log;
  std::string log_level = "info";
  std::string allow_faults;

  Prices prices;
};

// Reads the command line. On --help and --version, and for usage errors, it
// has printed what is to be said and *exit_code is set (0 or 2).
// Returns false when the program should exit with *exit_code.
bool ParseFlags(int argc, char** argv, Config* config, int* exit_code);

// A price table:
//   currency: EUR
//   core_hour: 0.04
//   gpu_hour: 0.30
//   gpu_hours: {T4: 0.35, V100: 2.48}
// InvalidArgument names file, line and field.
StatusOr<Prices> LoadPrices(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CONFIG_H_
