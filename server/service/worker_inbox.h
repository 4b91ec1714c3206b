// Processes the messages of one worker daemon's stream.
//
// Not thread-safe: the stream passes one message at a time.
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
#include "server/service/evidence_desk.h"
#include "server/service/session_desk.h"
#include "server/service/work_files.h"
#include "server/service/worker_outbox.h"
#include "server/service/worker_service.h"

namespace lockstep::server {

// The receivers of the messages. All outlive the inbox.
struct WorkerInboxServices {
  NodeSessions* sessions;
  const ClusterQueries* queries;
  LogStore* logs;
  // May be null.
  WorkFiles* files;
  EvidenceDesk* evidence;
  SessionDesk* session_desk;
};

class WorkerInbox {
 public:
  // `caller` is from the daemon's certificate. `obeyed_epoch` is the epoch that
  // the daemon obeyed last; 0 if not reported.
  WorkerInbox(WorkerServiceOptions options, WorkerInboxServices services,
              pki::Identity caller, uint64_t obeyed_epoch,
              std::shared_ptr<WorkerOutbox> outbox);

  // An error ends the stream.
  Status Take(const v1::WorkerMessage& message);
  // The stream has ended. REQUIRES: no Take is running or follows.
  void OnStreamEnd();

  const pki::Identity& caller() const { return caller_; }

 private:
  Status Register(const v1::Register& message);
  // Runs once the stream owns the node, which may be a while after
  // registration: a welcomed daemon sends heartbeats.
  void SettleIn();
  // Sends the node the jobs that were deleted while it was away.
  void DropOldWork(const std::vector<std::string>& uids);
  Status TakeHeartbeat(const v1::Heartbeat& message);
  Status TakeLog(const v1::LogChunk& message);

  // A copy, because the last message may be processed after the service's end.
  const WorkerServiceOptions options_;
  const WorkerInboxServices services_;
  const pki::Identity caller_;
  const uint64_t obeyed_epoch_;
  const std::shared_ptr<WorkerOutbox> outbox_;
  SessionId session_ = 0;
  // From the registration.
  NodeName node_;
  std::vector<std::string> work_jobs_;
  bool settled_in_ = false;
  WorkFiles::Connection files_connection_ = 0;
  EvidenceDesk::Connection evidence_connection_ = 0;
  SessionDesk::Connection desk_connection_ = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_WORKER_INBOX_H_
