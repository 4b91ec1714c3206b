// Flags of lockstep-worker; docs/operations.md and --help describe them.
#ifndef LOCKSTEP_WORKER_AGENT_FLAGS_H_
#define LOCKSTEP_WORKER_AGENT_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/agent/ranks/rank_environment.h"
#include "worker/devices/nvml.h"

namespace lockstep::worker {

struct AgentFlags {
  std::string dir;
  std::string runtime_dir;
  std::string coordinator;
  std::string node;
  std::string address;
  std::string http_address = "127.0.0.1:9464";
  std::string web_config;
  std::string http_token_file;
  std::optional<double> cpus;
  std::optional<uint64_t> memory;
  std::optional<int32_t> gpus;
  double gpu_sample_seconds = 1;
  double first_sign_seconds = 600;
  std::string pool = "default";
  std::string ca;
  std::string cert;
  std::string key;
  bool insecure_loopback = false;
  std::string shim;
  std::string task_user;
  std::string rank_cgroup;
  std::string ports;
  std::string container_engine = "auto";
  std::vector<std::string> container_options;
  bool container_root = false;
  uint64_t package_cache = uint64_t{20} << 30;
  std::vector<std::string> inherit = agent::DefaultInherit();
  std::string nvml_library = devices::Nvml::kLibrary;
  std::string py_spy = "auto";
  std::string gpu_check = "auto";
  std::string exec = "on";
  std::string log_level = "info";
  std::string allow_faults;
};

// Returns false if the program must exit with *exit_code; the reason is
// printed.
bool ParseAgentFlags(int argc, char** argv, AgentFlags* flags, int* exit_code);

}  // namespace lockstep::worker

#endif  // LOCKSTEP_WORKER_AGENT_FLAGS_H_
