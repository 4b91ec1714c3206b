// Keeps the histories of all jobs: those that run in memory, and a file for
// each, which is written every few minutes, at the job's end and at the
// coordinator's. After a
// restart of the coordinator a file has what memory lacks.
//
// Thread-safe. Look() takes a sample without the coordinator's lock and without
// disk access: 40 ms for 500 jobs of 64 ranks on two old cores. The files are
// written by a thread of this object.
#ifndef LOCKSTEP_SERVER_HISTORY_HISTORY_KEEPER_H_
#define LOCKSTEP_SERVER_HISTORY_HISTORY_KEEPER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/repeating_thread.h"
#include "server/coordinator/snapshot.h"
#include "server/history/history.h"
#include "server/history/history_files.h"

namespace lockstep::server {

struct HistoryOptions {
  HistoryLimits memory;
  HistoryFileLimits disk;
  // How often the files of running jobs are replaced.
  Duration save_interval = std::chrono::minutes(5);
  // How often the thread looks for work. Zero: only Save() writes.
  Duration work_interval = std::chrono::seconds(1);
  // Checks the space on disk. May be empty.
  std::function<Status()> space = {};
};

class HistoryKeeper {
 public:
  // `files` outlives this object. `dir` exists.
  HistoryKeeper(HistoryOptions options, FileSystem* files, std::string dir);

  // Takes a sample of every running job. Call it once a second with views in
  // time order.
  void Look(const CoordinatorView& view) ABSL_LOCKS_EXCLUDED(mu_);

  // The history of a job in at most `points` equal steps: of the last `span`
  // before `to`, or of its life since `from` if that is shorter. Empty if
  // nothing is known.
  struct Query {
    std::string job;
    std::string uid;
    WallTime from{};
    WallTime to{};
    std::optional<Duration> span = std::nullopt;
    size_t points = 240;
  };
  HistoryPlot Read(const Query& query) ABSL_LOCKS_EXCLUDED(mu_);

  // The job is deleted: its history goes with it, soon.
  void Remove(const std::string& uid) ABSL_LOCKS_EXCLUDED(mu_);

  // Writes what is due, and deletes what is too old. The thread calls it.
  void Save() ABSL_LOCKS_EXCLUDED(mu_);
  // Writes the histories of all running jobs, in about `within` at most, and
  // ends the thread. For the coordinator's end.
  void SaveAll(Duration within) ABSL_LOCKS_EXCLUDED(mu_);
  // Bytes in memory.
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A job with points in memory.
  struct Known {
    JobName name;
    std::string owner;
    WallTime from{};
    // When it was last written, or that was tried.
    WallTime saved{};
    std::optional<WallTime> ended = std::nullopt;
  };
  using KnownJobs = std::map<std::string, Known>;

  // Writes those that were last written `interval` ago, until `by`.
  void SaveDue(Duration interval, MonoTime by) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns false if the file could not be written.
  bool SaveJob(const std::string& uid, const Known& job, WallTime now);
  HistoryPlot Build(const std::string& job, const std::string& uid,
                    WallTime from, WallTime to, size_t points);

  const HistoryOptions options_;
  HistoryFiles files_;
  mutable Mutex mu_;
  History history_ ABSL_GUARDED_BY(mu_);
  // By uid.
  KnownJobs known_ ABSL_GUARDED_BY(mu_);
  // Of deleted jobs, whose files are still there.
  std::set<std::string> removed_ ABSL_GUARDED_BY(mu_);
  WallTime now_ ABSL_GUARDED_BY(mu_){};
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  // The last member, so that it stops before the others are destroyed.
  std::unique_ptr<RepeatingThread> thread_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_HISTORY_HISTORY_KEEPER_H_
