// Takes the messages of one worker daemon's stream.
//
// Not safe from several threads: the stream hands over one message at a time.
#ifndef LOCKSTEP_SERVER_SERVICE_WORKER_INBOX_H_
#define LOCKSTEP_SERVER_SERVICE_WORKER_INBOX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/pki/identity.h"
#include "lockstep/v1/worker.pb.h"
#include "server/coordinator/cluster_queries.h"
#include "server/coordinator/node_sessions.h"
#include "server/logs/log_store.h"
#include "server/service/work_files.h"
#include "server/service/worker_outbox.h"
#include "server/service/worker_service.h"

namespace lockstep {

// Where the messages go. All outlive the inbox.
struct WorkerInboxServices {
  NodeSessions* sessions;
  const ClusterQueries* queries;
  LogStore* logs;
  // May be null.
  WorkFiles* files;
};

class WorkerInbox {
 public:
  // `caller` is the daemon's certificate. `obeyed_epoch` is the coordinator's
  // epoch that the daemon has obeyed last; 0 if it does not say.
  WorkerInbox(WorkerServiceOptions options, WorkerInboxServices services,
              Identity caller, uint64_t obeyed_epoch,
              std::shared_ptr<WorkerOutbox> outbox);

  // An error ends the stream.
  Status Take(const v1::WorkerMessage& message);
  // The stream has ended. REQUIRES: no Take is under way or comes after this.
  void OnStreamEnd();

  const Identity& caller() const { return caller_; }

 private:
  Status Register(const v1::Register& message);
  // Does what is to be done once the node is this stream's. That may be a while
  // after it registered: a daemon that is welcome beats.
  void SettleIn();
  // Tells the node which of its jobs were deleted while it was away.
  void DropOldWork(const std::vector<std::string>& uids);
  Status TakeHeartbeat(const v1::Heartbeat& message);
  Status TakeLog(const v1::LogChunk& message);

  // A copy: the last message may be taken after the service is gone.
  const WorkerServiceOptions options_;
  const WorkerInboxServices services_;
  const Identity caller_;
  const uint64_t obeyed_epoch_;
  const std::shared_ptr<WorkerOutbox> outbox_;
  SessionId session_ = 0;
  // Of the registration.
  NodeName node_;
  std::vector<std::string> work_jobs_;
  bool settled_in_ = false;
  WorkFiles::Connection files_connection_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_WORKER_INBOX_H_
