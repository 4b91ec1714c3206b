#include "client/local/settings.h"

#include <unistd.h>

#include <algorithm>

#include "client/local/machine.h"
#include "client/local/ports.h"

namespace lockstep::cli {
namespace {

constexpr int kMaxWorkers = 1000;

}  // namespace

StatusOr<ClusterRecord> WantedCluster(ClusterRecord record,
                                      const LocalClusterOptions& options,
                                      const LocalLayout& layout) {
  if (record.workers.empty()) record.http_token = true;
  if (options.http_token) record.http_token = *options.http_token;
  if (options.prices) {
    record.prices = *options.prices;
    if (!record.prices.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(record.prices, AbsolutePath(record.prices));
    }
  }
  if (options.log_level) record.log_level = *options.log_level;
  if (options.insecure_loopback) {
    record.insecure_loopback = *options.insecure_loopback;
  }
  if (record.runtime_dir.empty()) {
    record.runtime_dir = RuntimeDir(layout.dir, geteuid());
  }
  const int before = static_cast<int>(record.workers.size());
  const int workers = options.workers.value_or(before > 0 ? before : 2);
  if (workers < 1 || workers > kMaxWorkers) {
    return InvalidArgument("{} workers: a local cluster has 1 to {}", workers,
                           kMaxWorkers);
  }
  const bool divide =
      before != workers || options.cpus || options.memory_bytes || options.gpus;
  if (!divide) return record;
  LOCKSTEP_ASSIGN_OR_RETURN(LocalMachine machine, ReadMachine());
  if (options.cpus) machine.cpus = *options.cpus;
  if (options.memory_bytes) machine.memory_bytes = *options.memory_bytes;
  if (options.gpus) machine.gpus = *options.gpus;
  // Existing workers keep their ports.
  const int missing =
      (record.grpc_port == 0 ? 2 : 0) + std::max(0, workers - before);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<uint16_t> ports,
                            ChoosePorts(missing));
  size_t next = 0;
  if (record.grpc_port == 0) {
    record.grpc_port = ports[next++];
    record.http_port = ports[next++];
  }
  record.workers.resize(workers);
  const std::vector<Share> shares = Divide(machine, workers);
  for (int i = 0; i < workers; ++i) {
    WorkerRecord& worker = record.workers[i];
    worker.name = WorkerName(i);
    worker.share = shares[i];
    if (worker.http_port == 0) worker.http_port = ports[next++];
  }
  return record;
}

}  // namespace lockstep::cli
