// WorkerService of proto/lockstep/v1/worker.proto: one stream per worker
// daemon, without a thread of its own. What a daemon says is taken on the pool
// of the workers' role: a commit to disk holds up no thread of gRPC's.
#ifndef LOCKSTEP_SERVER_SERVICE_WORKER_SERVICE_H_
#define LOCKSTEP_SERVER_SERVICE_WORKER_SERVICE_H_

#include <functional>
#include <string>

#include "common/rpc/call_pools.h"
#include "lockstep/v1/worker.grpc.pb.h"
#include "server/coordinator/cluster_queries.h"
#include "server/coordinator/node_sessions.h"
#include "server/logs/log_store.h"
#include "server/metrics/stream_metrics.h"
#include "server/service/work_files.h"

namespace lockstep {

struct WorkerServiceOptions {
  std::string cluster;
  Duration heartbeat_interval = std::chrono::milliseconds(500);
  Duration lease = std::chrono::seconds(3);
  // Not OK: logs are not taken, so that nodes keep them and send them again;
  // empty: they always are. What it asks outlives the call pools.
  std::function<Status()> space = nullptr;
};

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  // All outlive it, and all but `pools` outlive `pools`; `streams` and `files`
  // may be null.
  WorkerService(WorkerServiceOptions options, CallPools* pools,
                NodeSessions* sessions, const ClusterQueries* queries,
                LogStore* logs, StreamMetrics* streams = nullptr,
                WorkFiles* files = nullptr)
      : options_(std::move(options)),
        pools_(pools),
        sessions_(sessions),
        queries_(queries),
        logs_(logs),
        streams_(streams),
        files_(files) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  const WorkerServiceOptions options_;
  CallPools* const pools_;
  NodeSessions* const sessions_;
  const ClusterQueries* const queries_;
  LogStore* const logs_;
  StreamMetrics* const streams_;
  WorkFiles* const files_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_WORKER_SERVICE_H_
