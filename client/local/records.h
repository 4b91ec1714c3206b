// The two files of a local cluster, as values. Pure.
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

namespace lockstep {

struct WorkerRecord {
  std::string name;
  uint16_t http_port = 0;
  Share share;

  bool operator==(const WorkerRecord&) const = default;
};

// cluster.json: what the cluster is, whether it runs or not.
struct ClusterRecord {
  // In the certificates.
  std::string cluster = "local";
  bool insecure_loopback = false;
  // Whether HTTP asks for the token in http-token. New clusters do; one that
  // was written down before there was a token stays open.
  bool http_token = false;
  std::string log_level = "info";
  // The site's price table; empty: none.
  std::string prices;
  std::string runtime_dir;
  uint16_t grpc_port = 0;
  uint16_t http_port = 0;
  std::vector<WorkerRecord> workers;

  bool operator==(const ClusterRecord&) const = default;
};

// state.json: by daemon, the process that was started for it last.
struct RunningDaemon {
  ProcessId process;
  // With another one the pid is of a machine state that is gone.
  std::string boot_id;

  bool operator==(const RunningDaemon&) const = default;
};
using StateRecord = std::map<std::string, RunningDaemon>;

std::string EncodeCluster(const ClusterRecord& record);
std::string EncodeState(const StateRecord& state);
// InvalidArgument says what is wrong.
StatusOr<ClusterRecord> DecodeCluster(std::string_view json);
StatusOr<StateRecord> DecodeState(std::string_view json);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_RECORDS_H_
