// WorkerService of proto/lockstep/v1/worker.proto: one stream per worker
// daemon, without its own thread. Reports are processed on the pool of the
// workers' role, so a commit to disk does not block gRPC's threads.
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
#include "server/service/evidence_desk.h"
#include "server/service/session_desk.h"
#include "server/service/work_files.h"

namespace lockstep::server {

struct WorkerServiceOptions {
  std::string cluster;
  Duration heartbeat_interval = std::chrono::milliseconds(500);
  Duration lease = std::chrono::seconds(3);
  // An error rejects logs, so that nodes keep and resend them. Empty to accept
  // always. Its dependencies outlive the call pools.
  std::function<Status()> space = nullptr;
  // Outlives the call pools. Null: no evidence is collected.
  EvidenceDesk* evidence = nullptr;
  // Outlives the call pools. Null: there are no sessions.
  SessionDesk* sessions = nullptr;
};

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  // All outlive this object, and all but `pools` outlive `pools`; `streams` and
  // `files` may be null.
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
  grpc::ServerBidiReactor<v1::SessionOutput, v1::SessionInput>* ServeSession(
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

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_WORKER_SERVICE_H_
