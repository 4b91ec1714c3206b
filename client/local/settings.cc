// LocalCluster: what it is to be, from what was asked for and what is there.
#include <unistd.h>

#include <algorithm>

#include "client/local/local_cluster.h"
#include "client/local/machine.h"
#include "client/local/ports.h"
#include "common/base/file.h"

namespace lockstep {
namespace {

constexpr int kMaxWorkers = 1000;

}  // namespace

StatusOr<ClusterRecord> LocalCluster::Wanted() const {
  ClusterRecord record = record_;
  if (record.workers.empty()) record.http_token = true;
  if (options_.http_token) record.http_token = *options_.http_token;
  if (options_.prices) {
    record.prices = *options_.prices;
    if (!record.prices.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(record.prices, AbsolutePath(record.prices));
    }
  }
  if (options_.log_level) record.log_level = *options_.log_level;
  if (options_.insecure_loopback) {
    record.insecure_loopback = *options_.insecure_loopback;
  }
  if (record.runtime_dir.empty()) {
    record.runtime_dir = RuntimeDir(layout_.dir, geteuid());
  }
  const int before = static_cast<int>(record.workers.size());
  const int workers = options_.workers.value_or(before > 0 ? before : 2);
  if (workers < 1 || workers > kMaxWorkers) {
    return InvalidArgument("{} workers: a local cluster has 1 to {}", workers,
                           kMaxWorkers);
  }
  const bool divide = before != workers || options_.cpus ||
                      options_.memory_bytes || options_.gpus;
  if (!divide) return record;
  LOCKSTEP_ASSIGN_OR_RETURN(LocalMachine machine, ReadMachine());
  if (options_.cpus) machine.cpus = *options_.cpus;
  if (options_.memory_bytes) machine.memory_bytes = *options_.memory_bytes;
  if (options_.gpus) machine.gpus = *options_.gpus;
  // Ports of those that were there are kept.
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

Status LocalCluster::Write(const ClusterRecord& record) {
  if (record == record_) return OkStatus();
  for (const DaemonStatus& daemon : Daemons()) {
    if (daemon.running) {
      return FailedPrecondition(
          "the cluster in {0} runs with other settings; `lockstep local down "
          "--dir {0}` first, then `up` with these",
          layout_.dir);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      layout_.ClusterFile(), EncodeCluster(record)));
  record_ = record;
  return OkStatus();
}

}  // namespace lockstep
