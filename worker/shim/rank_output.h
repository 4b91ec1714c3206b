// A rank's standard output and error, on their way to its log.
#ifndef LOCKSTEP_WORKER_SHIM_RANK_OUTPUT_H_
#define LOCKSTEP_WORKER_SHIM_RANK_OUTPUT_H_

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/shim/io.h"
#include "worker/shim/log_writer.h"
#include "worker/task/exit_record.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {

class RankOutput {
 public:
  // Opens the log. Returns false with a sentence in *error.
  bool Open(const task::ShimSpec& spec, std::string* error);
  // Takes the read ends of the rank's pipes. With `keep_last_line`
  // last_error_line() is known.
  void Attach(Fd out, Fd err, bool keep_last_line);

  // Descriptors to poll, and their handling afterwards. `fds` are the kFds
  // entries that AddFds added, in order.
  static constexpr size_t kFds = 2;
  void AddFds(std::vector<pollfd>* fds) const;
  void OnReady(const pollfd* fds);
  // Writes what is due at `now` to the log.
  void FlushDue(int64_t now);
  // When FlushDue is to be called although nothing happens; -1: never.
  int64_t NextDeadline() const;

  // Reads what is there. Returns true if both pipes are at their end.
  bool Drain();
  // Closes the pipes and syncs the log. Sets the log's size in *record.
  void Close(task::ExitRecord* record);
  // Tries again to write what was lost, if anything was.
  void Complete(task::ExitRecord* record);

  const std::string& last_error_line() const { return err_.last_line(); }

 private:
  LogWriter log_;
  OutputPipe out_{cri::LogStream::kStdout, &log_};
  OutputPipe err_{cri::LogStream::kStderr, &log_};
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_RANK_OUTPUT_H_
