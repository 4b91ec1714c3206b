// The container of a rank from the shim's side: commands of its engine, which
// identifies it by name, and reports of its init.
//
//   the client ends -> (inspect) -> remove -> settle -> gone
//
// inspect: only without a report. remove: also stops remaining processes;
// retried on failure. settle: the engine's own processes (podman's conmon and
// its cleanup) exit by themselves.
#ifndef LOCKSTEP_WORKER_SHIM_CONTAINER_H_
#define LOCKSTEP_WORKER_SHIM_CONTAINER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "worker/shim/container_report.h"
#include "worker/shim/container_signal.h"
#include "worker/shim/helper.h"
#include "worker/shim/io.h"
#include "worker/task/exit_record.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {

// Without a container it does nothing and is gone from the start.
class ContainerKeeper {
 public:
  // `spec` must outlive this.
  explicit ContainerKeeper(const task::ShimSpec& spec)
      : spec_(spec), signal_(spec, &helper_) {}

  bool any() const { return !spec_.container.name.empty(); }
  // The program was seen running.
  bool started() const { return report_.started; }

  // Reads one report. Returns false if there is none for now.
  bool TakeReport(Fd* pipe) { return report_.Take(pipe); }

  // For the time in which the client runs.
  ContainerSignal& signal() { return signal_; }
  const ContainerSignal& signal() const { return signal_; }

  // Returns whether `pid`, which has ended, was a command of the engine.
  bool OnChild(pid_t pid, int wait_status);
  int output_fd() const { return helper_.output_fd(); }
  void OnOutput() { helper_.OnOutput(); }

  // The client has ended with *wait_status. Replaces it by the program's
  // status, or explains in *record why the program never ran. `said` is the
  // client's last error line.
  void OnClientEnded(int* wait_status, const std::string& said,
                     task::ExitRecord* record);
  // Returns true once the container is gone or abandoned (record->tree_left).
  // `no_child` is set if the shim has no children left.
  bool GoOnEnding(int64_t now, bool no_child, task::ExitRecord* record);

 private:
  enum class Step { kBegin, kInspect, kRemove, kSettle, kGone };

  void TakeInspection(task::ExitRecord* record);
  void StartRemoval(int64_t now);

  const task::ShimSpec& spec_;
  Helper helper_;
  ContainerReport report_;
  ContainerSignal signal_;

  Step step_ = Step::kBegin;
  bool inspect_ = false;
  std::string said_;
  int removals_ = 0;
  int64_t next_removal_ = 0;
  int64_t settle_until_ = 0;
};

// Returns the wait status for the exit code of a shell or an engine: 128 + n
// means death by signal n, if that signal ends processes.
int WaitStatusOf(int code);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_CONTAINER_H_
