// What ranks wrote, kept by the coordinator: plain files, one per rank and
// generation, with the same bytes as on the node.
//
//   <dir>/<job uid>/g<generation>-r<rank>.log     CRI lines
//   <dir>/<job uid>/g<generation>-r<rank>.end     nothing more comes: of which
//                                                 start of the rank (a number;
//                                                 empty is 0)
//
// Thread-safe. Writing and syncing are done by a thread of its own, many
// pieces at a time; a piece is acknowledged when it is on disk.
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

namespace lockstep {

struct LogKey {
  std::string job_uid;
  Generation generation = 0;
  int32_t rank = 0;

  auto operator<=>(const LogKey&) const = default;
};

class LogStore {
 public:
  struct Ack {
    // Everything below is on disk.
    uint64_t offset = 0;
    bool end = false;
  };
  using OnAck = std::function<void(const Ack&)>;

  // `files` outlives the store. `dir` is made when it is missing; that its name
  // is on the disk is the caller's business.
  LogStore(FileSystem* files, std::string dir);
  ~LogStore();
  LogStore(const LogStore&) = delete;
  LogStore& operator=(const LogStore&) = delete;

  // Queues `data`, whose first byte is number `offset`. A piece that begins
  // beyond what is there is dropped, and the acknowledgement says from where
  // to send again; bytes that are there already are skipped. `on_ack` runs on
  // the store's thread. On a write error there is no acknowledgement: the
  // sender tries again. `life`: how often the rank had been started again alone
  // by then, for an `end`. ResourceExhausted: too much waits to be written.
  Status Append(const LogKey& key, uint64_t offset, std::string data, bool end,
                OnAck on_ack, int32_t life = 0);

  // At most `limit` bytes from `offset`; empty at the end of what is there, or
  // while nothing is. NotFound: what was before `offset` has been removed.
  StatusOr<std::string> Read(const LogKey& key, uint64_t offset, size_t limit);
  bool Ended(const LogKey& key) { return EndedLife(key).has_value(); }
  // The `life` with which it ended; nullopt: it has not.
  std::optional<int32_t> EndedLife(const LogKey& key);

  // What is there, by job.
  struct JobLogs {
    std::string uid;
    uint64_t bytes = 0;
    // The last write to any of them.
    WallTime last_write{};
  };
  StatusOr<std::vector<JobLogs>> List();
  // Whether anything of the job is there.
  bool Has(const std::string& job_uid);
  // Drops all logs of a job, soon; what is written to them later begins anew.
  void Remove(const std::string& job_uid);

  // One who is told whenever logs of a job were written or removed, from its
  // construction to its destruction, and when the store closes. `on_change` is
  // called with a lock of the store held, so it must only hand on.
  class Listener {
   public:
    Listener(LogStore* store, std::string job_uid,
             std::function<void()> on_change);
    // `on_change` is not called any more.
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    friend class LogStore;
    LogStore* const store_;
    const std::function<void()> on_change_;
    std::multimap<std::string, Listener*>::iterator at_;
  };

  // Rises whenever anything was written.
  uint64_t change();
  // Waits until change() is above `seen`, the store closes or `deadline`.
  void WaitForChange(uint64_t seen, MonoTime deadline);
  // Wakes those who wait, for good.
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
    // ... and that is on disk: with which life.
    std::optional<int32_t> ended = std::nullopt;
  };

  std::string PathOf(const LogKey& key, const char* suffix) const;
  void Run();
  // That logs of these jobs changed.
  void Tell(const std::set<std::string>& uids) ABSL_LOCKS_EXCLUDED(mu_);
  void WriteAll(std::deque<Piece> pieces);
  // Writes and syncs what came of one log.
  StatusOr<Ack> WriteLog(const LogKey& key, const std::vector<Piece*>& pieces);
  void RemoveNow(const std::string& job_uid);
  StatusOr<Target*> Open(const LogKey& key);
  // Writes what is new of `piece`; nothing of one that begins beyond the end.
  Status WriteOne(const Piece& piece, Target* target);
  // Makes what was written durable.
  Status Settle(const LogKey& key, Target* target);

  FileSystem* const files_;
  const std::string dir_;
  // Only the thread's.
  std::map<LogKey, Target> open_;

  Mutex mu_;
  CondVar wake_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Piece> queue_ ABSL_GUARDED_BY(mu_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::string> removals_ ABSL_GUARDED_BY(mu_);
  uint64_t change_ ABSL_GUARDED_BY(mu_) = 1;
  // By job.
  std::multimap<std::string, Listener*> listeners_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_LOGS_LOG_STORE_H_
