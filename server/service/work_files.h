// Asks nodes for parts of tasks' working directories, over the streams that
// their daemons hold open, and waits for the answers.
//
// Thread-safe. A call waits on the thread of its own RPC, at most for
// `patience`.
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
#include "server/service/turns.h"

namespace lockstep {

struct WorkFilesOptions {
  // For one answer of a node.
  Duration patience = std::chrono::seconds(10);
  // Questions that one node may have at a time.
  size_t of_node = 8;
  // Of a file that may be read.
  int64_t max_file_bytes = int64_t{1} << 30;
  // Lists and reads at a time; a call whose reader takes nothing for `idle` is
  // ended.
  TurnLimits turns{32, 4};
  Duration idle = std::chrono::seconds(60);
};

class WorkFiles {
 public:
  explicit WorkFiles(WorkFilesOptions options = {});

  // A daemon's stream. `send` queues, and may still be called for a moment
  // after Disconnect. A later one of the same node takes its place.
  using Connection = uint64_t;
  Connection Connect(const NodeName& node,
                     std::function<void(const FileQuery&)> send);
  // What was asked over it gets no answer.
  void Disconnect(Connection connection);
  // An answer that came over it. Others than those awaited there are dropped.
  void OnAnswer(Connection connection, FileAnswer answer);

  // The node's answer; `query.id` is set here. Not OK: the answer's own status,
  // or Unavailable: the node is silent, or has too much to answer, or
  // DeadlineExceeded.
  StatusOr<FileAnswer> Ask(const NodeName& node, FileQuery query);

  const WorkFilesOptions& options() const { return options_; }
  Turns* turns() { return &turns_; }
  // Ends calls whose reader stands still; call it now and then.
  void CancelIdle(MonoTime now) { turns_.CancelIdle(now - options_.idle); }

 private:
  struct Peer {
    NodeName node;
    std::function<void(const FileQuery&)> send;
    size_t waiting = 0;
  };
  struct Question {
    Connection connection = 0;
    std::optional<FileAnswer> answer;
    bool lost = false;
  };

  struct Asked {
    uint64_t id = 0;
    std::function<void(const FileQuery&)> send;
  };
  StatusOr<Asked> Begin(const NodeName& node) ABSL_LOCKS_EXCLUDED(mu_);
  StatusOr<FileAnswer> Await(const NodeName& node, uint64_t id)
      ABSL_LOCKS_EXCLUDED(mu_);

  const WorkFilesOptions options_;
  Turns turns_;
  Mutex mu_;
  CondVar changed_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<Connection, Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::map<NodeName, Connection> nodes_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Question> questions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_WORK_FILES_H_
