// The two record files of a local cluster. Pure.
#ifndef LOCKSTEP_CLIENT_LOCAL_RECORDS_H_
#define LOCKSTEP_CLIENT_LOCAL_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/local/machine.h"
#include "common/base/status.h"
#include "common/os/process.h"

namespace lockstep::cli {

struct WorkerRecord {
  std::string name;
  uint16_t http_port = 0;
  Share share;

  bool operator==(const WorkerRecord&) const = default;
};

// cluster.json: the cluster's configuration.
struct ClusterRecord {
  // The cluster name in the certificates.
  std::string cluster = "local";
  bool insecure_loopback = false;
  // HTTP requires the token in http-token. True for new clusters; clusters
  // recorded before there was a token stay open.
  bool http_token = false;
  std::string log_level = "info";
  // The site's price table, or empty.
  std::string prices;
  std::string runtime_dir;
  uint16_t grpc_port = 0;
  uint16_t http_port = 0;
  std::vector<WorkerRecord> workers;

  bool operator==(const ClusterRecord&) const = default;
};

// state.json: the process last started for each daemon.
struct RunningDaemon {
  ProcessId process;
  // A different boot id means that the pid is from before a reboot.
  std::string boot_id;

  bool operator==(const RunningDaemon&) const = default;
};
using StateRecord = std::map<std::string, RunningDaemon>;

std::string EncodeCluster(const ClusterRecord& record);
std::string EncodeState(const StateRecord& state);
// InvalidArgument describes the fault.
StatusOr<ClusterRecord> DecodeCluster(std::string_view json);
StatusOr<StateRecord> DecodeState(std::string_view json);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_RECORDS_H_
