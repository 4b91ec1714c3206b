// Asks nodes for parts of tasks' working directories over their daemons'
// streams.
//
// Thread-safe. The answer wakes the caller, which holds no thread until then.
#ifndef LOCKSTEP_SERVER_SERVICE_WORK_FILES_H_
#define LOCKSTEP_SERVER_SERVICE_WORK_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/wire/worker_wire.h"
#include "server/stream/admission_limiter.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {

struct WorkFilesOptions {
  // For one answer of a node.
  Duration patience = std::chrono::seconds(10);
  // Concurrent queries per node.
  size_t of_node = 8;
  // Of a readable file.
  int64_t max_file_bytes = int64_t{1} << 30;
  // Concurrent lists and reads. A call whose reader takes nothing for `idle` is
  // ended.
  AdmissionLimits reads{32, 4};
  Duration idle = std::chrono::seconds(60);
};

class WorkFiles {
 public:
  explicit WorkFiles(WorkFilesOptions options = {});

  // A daemon's stream. `send` queues, and may be called for a moment after
  // Disconnect. A later stream of the node replaces it.
  using Connection = uint64_t;
  Connection Connect(const NodeName& node,
                     std::function<void(const FileQuery&)> send);
  // Pending queries on it fail.
  void Disconnect(Connection connection);
  // Takes an answer from the stream. Unexpected answers are dropped.
  void OnAnswer(Connection connection, FileAnswer answer);

  // One query. Must end before its call and before `WorkFiles`. Its calls are
  // serial.
  class Question {
   public:
    // Sends the query and sets `query.id`. `peer`, which outlives it, is woken
    // when Take has a result.
    Question(WorkFiles* files, const NodeName& node, FileQuery query,
             StreamPeer* peer);
    ~Question();
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;
    // Returns the answer, or nullopt if it has not arrived; it does by
    // deadline(). Errors: the answer's own status, Unavailable if the node is
    // silent or has too many queries, or DeadlineExceeded.
    StatusOr<std::optional<FileAnswer>> Take();
    MonoTime deadline() const { return deadline_; }

   private:
    friend class WorkFiles;
    WorkFiles* const files_;
    const NodeName node_;
    StreamPeer* const peer_;
    const MonoTime deadline_;
    // The status of sending.
    Status status_;
    // 0 if it was not sent.
    uint64_t id_ = 0;
    Connection connection_ ABSL_GUARDED_BY(files_->mu_) = 0;
    std::optional<FileAnswer> answer_ ABSL_GUARDED_BY(files_->mu_);
    bool lost_ ABSL_GUARDED_BY(files_->mu_) = false;
  };

  const WorkFilesOptions& options() const { return options_; }
  AdmissionLimiter* limiter() { return &limiter_; }
  // Ends calls with idle readers. Call it periodically.
  void CancelIdle(MonoTime now) { limiter_.CancelIdle(now - options_.idle); }

 private:
  struct Peer {
    NodeName node;
    std::function<void(const FileQuery&)> send;
    size_t waiting = 0;
  };
  // Returns the function that sends to the node.
  StatusOr<std::function<void(const FileQuery&)>> Begin(Question* question)
      ABSL_LOCKS_EXCLUDED(mu_);

  const WorkFilesOptions options_;
  AdmissionLimiter limiter_;
  Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<Connection, Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::map<NodeName, Connection> nodes_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Question*> questions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_WORK_FILES_H_
