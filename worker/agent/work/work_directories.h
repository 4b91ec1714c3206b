// The working directories of this node's jobs: created when ranks start, kept
// longer than their gangs, and removed on the coordinator's request or when the
// disk is full.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_WORK_WORK_DIRECTORIES_H_
#define LOCKSTEP_WORKER_AGENT_WORK_WORK_DIRECTORIES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/assignment.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/store/removal.h"
#include "worker/agent/work/work_store.h"

namespace lockstep::worker::agent {

class WorkDirectories {
 public:
  // All are borrowed.
  WorkDirectories(const DaemonSetup* setup, EventLoop* loop, FileSystem* files,
                  const CoreRunner* core, Removal* removal);

  // Scans the directories. Returns those that were set aside earlier, to be
  // removed.
  StatusOr<std::vector<std::string>> Init() { return store_.Init(); }
  // Jobs, by uid, that have directories here.
  const std::set<std::string>& jobs() const { return store_.jobs(); }
  // Returns the directory of a task. InvalidArgument: `uid` is not a job's.
  StatusOr<std::string> PathOf(const std::string& uid, TaskType type,
                               int32_t index) const {
    return store_.PathOf(uid, type, index);
  }
  // Creates the directory of the task, unless the job sets another one.
  Status Make(const Assignment& assignment, const LocalTask& task);
  // A gang of the job was forgotten.
  void OnGangForgotten(const std::string& uid);

  // The coordinator has removed the jobs: removes their directories now or when
  // their gangs are gone.
  void Drop(const std::vector<std::string>& uids);
  // A new coordinator sends its removals again.
  void ForgetDrops() { unwanted_.clear(); }
  // The disk is full: removes the directories of the least recently used job
  // without a gang here.
  void DropOldest();
  // Jobs whose directories DropOldest has removed.
  uint64_t dropped_jobs() const { return dropped_jobs_; }

 private:
  // Returns whether a gang of this job is here.
  bool IsHere(const std::string& uid) const;
  void Remove(const std::string& uid);

  const DaemonSetup* const setup_;
  EventLoop* const loop_;
  const CoreRunner* const core_;
  Removal* const removal_;
  WorkStore store_;
  // Jobs whose directories are removed when their gangs are gone.
  std::set<std::string> unwanted_;
  bool dropping_ = false;
  uint64_t dropped_jobs_ = 0;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_WORK_WORK_DIRECTORIES_H_
