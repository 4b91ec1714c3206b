// A command of a container engine that the shim runs next to its rank.
#ifndef LOCKSTEP_WORKER_SHIM_HELPER_H_
#define LOCKSTEP_WORKER_SHIM_HELPER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/shim/io.h"

namespace lockstep::worker::shim {

class Helper {
 public:
  // Returns false if it could not start.
  bool Start(const std::vector<std::string>& argv,
             const std::vector<std::string>& env, int64_t deadline);

  bool running() const { return pid_ > 0; }
  // Returns whether `pid` was this command, which has ended.
  bool OnChild(pid_t pid, int wait_status);
  // Sends SIGKILL after its deadline (MonoNanos).
  void KillIfLate(int64_t now);
  void Kill();

  // -1 if there is nothing to read.
  int output_fd() const { return output_fd_.get(); }
  void OnOutput();
  // Result of the last ended command.
  bool ok() const { return ok_; }
  const std::string& output() const { return output_; }
  int64_t deadline() const { return deadline_; }

 private:
  pid_t pid_ = 0;
  int64_t deadline_ = 0;
  Fd output_fd_;
  std::string output_;
  bool ok_ = false;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_HELPER_H_
