// Outgoing messages of a worker daemon's stream.
//
// It is shared, because the coordinator and the log store may hold it longer
// than the stream lives. Detach marks the stream's end. Safe from any thread.
#ifndef LOCKSTEP_SERVER_SERVICE_WORKER_OUTBOX_H_
#define LOCKSTEP_SERVER_SERVICE_WORKER_OUTBOX_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "lockstep/v1/worker.pb.h"
#include "server/coordinator/worker_link.h"
#include "server/service/work_files.h"

namespace lockstep::server {

class WorkerOutbox final : public WorkerLink,
                           public std::enable_shared_from_this<WorkerOutbox> {
 public:
  using Reactor =
      grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>;
  struct Outgoing {
    v1::CoordinatorMessage message;
    // An assignment's cluster spec. It is encoded into the message at sending
    // time, so that messages to N nodes do not hold N encodings.
    std::shared_ptr<const SharedClusterSpec> cluster = nullptr;
  };

  explicit WorkerOutbox(Reactor* reactor) : reactor_(reactor) {}

  // Sets the message for SendWelcome. Call it before the coordinator gets this.
  void SetWelcome(v1::CoordinatorMessage welcome);
  void SendWelcome() override;
  bool welcomed() const;

  void SendAssignment(
      const Assignment& assignment,
      const std::shared_ptr<const SharedClusterSpec>& cluster) override;
  void SendRendezvous(const JobName& job, Generation generation,
                      const std::string& key,
                      const std::string& value) override;
  void SendPrefetch(const Prefetch& wanted) override;
  void SendHeartbeatAck(uint64_t sequence) override;
  void SendDropWork(const std::vector<std::string>& uids) override;
  void SendProbe(const ProbeQuery& query) override;
  void SendGpuCheck(const GpuCheckOrder& order) override;
  void SendNeighbours(const NeighbourList& list) override;
  void SendFileQuery(const FileQuery& query);
  void Close(const Status& status) override;

  void Send(Outgoing outgoing);

  // No effect after the stream's end.
  void StartRead(v1::WorkerMessage* message);
  // The pending write has ended.
  void OnWriteDone();
  // Messages that the daemon has not taken.
  int64_t Waiting() const;
  // No reactor call follows.
  void Detach();

 private:
  void WriteSoon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finish(const Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  // Null after the stream's end.
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
  v1::CoordinatorMessage welcome_ ABSL_GUARDED_BY(mu_);
  // While writing_, the first one is being written.
  std::deque<Outgoing> queue_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_WORKER_OUTBOX_H_
