// Checks GPUs when the coordinator asks (check_run.h), and answers.
//
// Belongs to the event loop's thread; each order has a thread of its own. What
// an order began ends with its stream: another coordinator may give the GPUs
// work.
#ifndef LOCKSTEP_WORKER_AGENT_CHECKS_GPU_CHECKER_H_
#define LOCKSTEP_WORKER_AGENT_CHECKS_GPU_CHECKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/model/gpu_check.h"
#include "common/model/job.h"
#include "worker/agent/checks/check_run.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/loop/work_thread.h"

namespace lockstep::worker::agent {

// The path of lockstep-gpu-check: `flag` if it is a path; with "auto" that in
// the folder of the shim's program, if it is there. Empty: there is none.
StatusOr<std::string> FindGpuCheck(const std::string& flag,
                                   const std::string& shim);

class GpuChecker {
 public:
  struct Parts {
    const DaemonSetup* setup = nullptr;
    EventLoop* loop = nullptr;
    // Empty: nothing is checked.
    std::string program;
    // The GPUs that ranks hold, by index.
    std::function<std::map<int32_t, JobName>()> held;
    std::function<void(uint64_t stream, const GpuCheckAnswer&)> answer;
  };
  explicit GpuChecker(Parts parts) : parts_(std::move(parts)) {}
  // Ends the checks, within seconds.
  ~GpuChecker();

  void OnOrder(uint64_t stream, const GpuCheckOrder& order);
  // Ends all checks soon, without an answer.
  void Cancel();

 private:
  struct Run {
    std::atomic<bool> cancelled = false;
    WorkThread thread;
  };
  // InvalidArgument, FailedPrecondition or Unimplemented says why not.
  StatusOr<GpuCheckPlan> PlanOf(const GpuCheckOrder& order) const;

  const Parts parts_;
  uint64_t next_ = 1;
  std::map<uint64_t, std::unique_ptr<Run>> runs_;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CHECKS_GPU_CHECKER_H_
