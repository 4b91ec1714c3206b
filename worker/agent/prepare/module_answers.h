// Cache of modules that an interpreter has found, to avoid a query per start of
// the same job: starting CPython takes 15 to 50 ms.
//
// It keeps only positive answers, and only for immutable code: the content of a
// package, by digest, with nothing before it in sys.path. The interpreter's own
// modules may change; `python -m` then reports the error.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_MODULE_ANSWERS_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_MODULE_ANSWERS_H_

#include <sys/types.h>

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/model/job.h"

namespace lockstep::worker::agent {

struct ModuleQuestion {
  // Absolute.
  std::string interpreter;
  // The user that would run the module; absent: the daemon's.
  std::optional<uid_t> user;
  std::string module;
  std::vector<Package> packages;
  bool allow_index = false;
};

// Returns the key of an answer, which includes the state of the interpreter's
// file (device, inode, size, times of change); nullopt if it cannot be
// inspected.
std::optional<std::string> KeyOf(const ModuleQuestion& question);

// Safe from any thread.
class ModuleAnswers {
 public:
  // Drops the oldest answers beyond `most`.
  explicit ModuleAnswers(size_t most = 1000) : most_(most) {}

  bool WasFound(const std::string& key) const ABSL_LOCKS_EXCLUDED(mu_);
  void Found(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const size_t most_;
  mutable Mutex mu_;
  std::set<std::string> found_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> order_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_MODULE_ANSWERS_H_
