// Removes directories of any size without blocking the event loop.
//
// Belongs to the event loop's thread; a thread of its own does the work.
#ifndef LOCKSTEP_WORKER_AGENT_STORE_REMOVAL_H_
#define LOCKSTEP_WORKER_AGENT_STORE_REMOVAL_H_

#include <functional>
#include <string>

#include "common/base/file.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/work_thread.h"
#include "worker/agent/store/task_store.h"

namespace lockstep::worker::agent {

class Removal {
 public:
  // All are borrowed.
  Removal(EventLoop* loop, FileSystem* files, TaskStore* store)
      : loop_(loop), files_(files), store_(store) {}

  // Renames `directory`, a gang's or one in it, immediately, and removes it
  // later. Does nothing if it does not exist.
  void RemoveLater(const std::string& directory);
  // Removes a directory that was set aside. The next start of the daemon
  // retries a failed removal. Calls `done`, if given, on the loop.
  void RemoveAside(const std::string& directory,
                   std::function<void()> done = nullptr);

 private:
  EventLoop* const loop_;
  FileSystem* const files_;
  TaskStore* const store_;
  WorkThread thread_;  // Last: its jobs use the others.
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STORE_REMOVAL_H_
