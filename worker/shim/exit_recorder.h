// Writes a rank's exit record, and tries again while that fails.
#ifndef LOCKSTEP_WORKER_SHIM_EXIT_RECORDER_H_
#define LOCKSTEP_WORKER_SHIM_EXIT_RECORDER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "worker/task/exit_record.h"

namespace lockstep::worker::shim {

class ExitRecorder {
 public:
  explicit ExitRecorder(std::string path) : path_(std::move(path)) {}

  // Sets the deadline. `now` is of CLOCK_MONOTONIC, like all times here.
  void Begin(int64_t now);
  // Whether Write is to be called.
  bool IsDue(int64_t now) const { return !durable_ && now >= next_try_; }
  // `has_reader`: a daemon is connected.
  void Write(const task::ExitRecord& record, int64_t now, bool has_reader);
  // When Write is due; -1: never.
  int64_t NextDeadline() const { return durable_ ? -1 : next_try_; }

  // The record is on disk.
  bool durable() const { return durable_; }
  // The record cannot be written.
  bool given_up() const { return given_up_; }

 private:
  const std::string path_;
  bool durable_ = false;
  bool given_up_ = false;
  int64_t next_try_ = 0;
  int64_t give_up_at_ = 0;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_EXIT_RECORDER_H_
