// WorkerService of proto/lockstep/v1/worker.proto: one stream per worker
// daemon, without a thread of its own.
#ifndef LOCKSTEP_SERVER_SERVICE_WORKER_SERVICE_H_
#define LOCKSTEP_SERVER_SERVICE_WORKER_SERVICE_H_

#include <string>

#include "lockstep/v1/worker.grpc.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/logs/log_store.h"
#include "server/service/stream_metrics.h"
#include "server/service/work_files.h"

namespace lockstep {

struct WorkerServiceOptions {
  std::string cluster;
  Duration heartbeat_interval = std::chrono::milliseconds(500);
  Duration lease = std::chrono::seconds(3);
};

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  // All outlive it; `streams` and `files` may be null.
  WorkerService(WorkerServiceOptions options, Coordinator* coordinator,
                LogStore* logs, StreamMetrics* streams = nullptr,
                WorkFiles* files = nullptr)
      : options_(std::move(options)),
        coordinator_(coordinator),
        logs_(logs),
        streams_(streams),
        files_(files) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  const WorkerServiceOptions options_;
  Coordinator* const coordinator_;
  LogStore* const logs_;
  StreamMetrics* const streams_;
  WorkFiles* const files_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_WORKER_SERVICE_H_
