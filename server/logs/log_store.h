// Output of ranks, stored by the coordinator as plain files, one per rank and
// generation, with the same bytes as on the node.
//
//   <dir>/<job uid>/g<generation>-r<rank>.log   CRI lines; on the rank's second
//                                               node
//                                               g<generation>-r<rank>.1.log
//   <dir>/<job uid>/g<generation>-r<rank>.end   the log is complete; holds the
//                                               rank's restart count (empty
//                                               means 0)
//
// Thread-safe. A separate thread writes and syncs many pieces at a time. A
// piece is acknowledged when it is on disk.
#ifndef LOCKSTEP_SERVER_LOGS_LOG_STORE_H_
#define LOCKSTEP_SERVER_LOGS_LOG_STORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/model/job.h"

namespace lockstep::server {

struct LogKey {
  std::string job_uid;
  Generation generation = 0;
  int32_t rank = 0;
  // How often its task had moved to another node: TaskStatus::former_nodes.
  int32_t moves = 0;

  auto operator<=>(const LogKey&) const = default;
};

class LogStore {
 public:
  struct Ack {
    // All bytes below this are on disk.
    uint64_t offset = 0;
    bool end = false;
  };
  using OnAck = std::function<void(const Ack&)>;

  // `files` outlives the store. `dir` is created if missing; the caller must
  // sync its parent.
  LogStore(FileSystem* files, std::string dir);
  ~LogStore();
  LogStore(const LogStore&) = delete;
  LogStore& operator=(const LogStore&) = delete;

  // Queues `data`, whose first byte has the number `offset`. A piece beyond the
  // end is dropped, and the acknowledgement says where to send from; existing
  // bytes are skipped. `on_ack` runs on the store's thread. After a write error
  // there is no acknowledgement, so the sender retries. `life`, for an `end`,
  // is the rank's number of lone restarts. ResourceExhausted if too much waits
  // to be written.
  Status Append(const LogKey& key, uint64_t offset, std::string data, bool end,
                OnAck on_ack, int32_t life = 0);

  // Reads at most `limit` bytes at `offset`; empty at the end, or before the
  // first write. NotFound if the bytes before `offset` were removed.
  StatusOr<std::string> Read(const LogKey& key, uint64_t offset, size_t limit);
  // The bytes of the log so far; 0 before the first write.
  StatusOr<uint64_t> SizeOf(const LogKey& key) const;
  bool Ended(const LogKey& key) { return EndedLife(key).has_value(); }
  // The `life` with which it ended. Nullopt if it has not ended.
  std::optional<int32_t> EndedLife(const LogKey& key);

  // Stored logs by job.
  struct JobLogs {
    std::string uid;
    uint64_t bytes = 0;
    // The last write to any of them.
    WallTime last_write{};
  };
  StatusOr<std::vector<JobLogs>> List();
  // True if there are logs of the job.
  bool Has(const std::string& job_uid);
  // Soon removes all logs of a job. Later writes start again.
  void Remove(const std::string& job_uid);

  // Notified after logs of a job were written or removed and when the store
  // closes, from construction to destruction. `on_change` is called with the
  // store's lock held, so it may only pass the event on.
  class Listener {
   public:
    Listener(LogStore* store, std::string job_uid,
             std::function<void()> on_change);
    // `on_change` is no longer called.
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    friend class LogStore;
    LogStore* const store_;
    const std::function<void()> on_change_;
    std::multimap<std::string, Listener*>::iterator at_;
  };

  // Takes no more writes, and tells all listeners.
  void Close();

 private:
  struct Piece {
    LogKey key;
    uint64_t offset = 0;
    std::string data;
    bool end = false;
    OnAck on_ack;
    int32_t life = 0;
  };
  struct Target {
    std::unique_ptr<WritableFile> file;
    uint64_t size = 0;
    bool unsynced = false;
    // The last piece has been written.
    bool ending = false;
    int32_t ending_life = 0;
    // The last piece is on disk, with this life.
    std::optional<int32_t> ended = std::nullopt;
  };

  std::string PathOf(const LogKey& key, const char* suffix) const;
  void Run();
  // Notifies the listeners of these jobs.
  void NotifyListeners(const std::set<std::string>& uids)
      ABSL_LOCKS_EXCLUDED(mu_);
  void WriteAll(std::deque<Piece> pieces);
  // Writes and syncs the pieces of one log.
  StatusOr<Ack> WriteLog(const LogKey& key, const std::vector<Piece*>& pieces);
  void RemoveNow(const std::string& job_uid);
  StatusOr<Target*> Open(const LogKey& key);
  // Writes the new part of `piece`; none of a piece beyond the end.
  Status WriteOne(const Piece& piece, Target* target);
  // Makes written bytes durable.
  Status Settle(const LogKey& key, Target* target);

  FileSystem* const files_;
  const std::string dir_;
  // Used by the thread only.
  std::map<LogKey, Target> open_;

  Mutex mu_;
  CondVar wake_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Piece> queue_ ABSL_GUARDED_BY(mu_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::string> removals_ ABSL_GUARDED_BY(mu_);
  // By job.
  std::multimap<std::string, Listener*> listeners_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_LOGS_LOG_STORE_H_
