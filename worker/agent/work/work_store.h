// The working directories of tasks: one for each task of each job, the same in
// every generation on this node.
//
//   DIR/work/UID/chief-0     owned by the task's user; its ranks start here
//   DIR/work/.gone-*         set aside, to be removed
//
// The time of DIR/work/UID is the last start or end of the job here. A job's
// directories outlive its gangs: they are removed on the coordinator's request,
// or, least recently used first, when the disk is full.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_AGENT_WORK_WORK_STORE_H_
#define LOCKSTEP_WORKER_AGENT_WORK_WORK_STORE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/job.h"

namespace lockstep::worker::agent {

class WorkStore {
 public:
  // `files` is borrowed; `dir` is the daemon's state directory.
  WorkStore(FileSystem* files, const std::string& dir);

  // Creates DIR/work and scans it. Returns directories that were set aside
  // earlier.
  StatusOr<std::vector<std::string>> Init();

  // Returns the path of a task's directory, which may not exist.
  // InvalidArgument: `uid` is not a job's.
  StatusOr<std::string> PathOf(const std::string& uid, TaskType type,
                               int32_t index) const;
  // Creates it if it is missing.
  StatusOr<std::string> Make(const std::string& uid, TaskType type,
                             int32_t index, uid_t owner, gid_t group);
  // The job ended here: its age counts from now. Removes empty directories of
  // its tasks.
  void Settle(const std::string& uid);

  // Jobs that have directories here.
  const std::set<std::string>& jobs() const { return jobs_; }
  // Returns the least recently used job outside `busy`, unused for at least
  // kKeptAtLeast. A job that waits for its next attempt is not in `busy`.
  std::optional<std::string> Oldest(const std::set<std::string>& busy,
                                    WallTime now) const;
  static constexpr Duration kKeptAtLeast = std::chrono::hours(24);
  // Renames the directories of the job for a later removal, and returns their
  // new paths. NotFound if there are none.
  StatusOr<std::string> SetAside(const std::string& uid);

 private:
  FileSystem* const files_;
  const std::string root_;
  std::set<std::string> jobs_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_WORK_WORK_STORE_H_
