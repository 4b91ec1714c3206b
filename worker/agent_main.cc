// lockstep-worker: builds the object graph and waits for a signal. The ranks
// that it started go on when it leaves; the next one adopts them.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "common/base/fault_point.h"
#include "common/base/fd.h"
#include "common/base/leave.h"
#include "common/base/logging.h"
#include "common/os/signals.h"
#include "common/rpc/grpc_log.h"
#include "worker/agent/host/orphans.h"
#include "worker/agent_app.h"
#include "worker/agent_flags.h"

namespace lockstep::worker {
namespace {

// From a signal to the end of the process, whatever hangs: a driver, a file
// system, a coordinator. All that must not be lost is on disk already.
constexpr auto kLeaveTime = std::chrono::milliseconds(1500);

// Waits for a signal on a thread of its own, so that it is seen also while the
// daemon starts: wakes the event loop by `wake`, and ends the process when that
// does not. The thread has descriptors of its own, because it outlives AgentApp
// where the start fails.
Status LeaveOnSignal(int app_signals, int app_wake) {
  const int signals = fcntl(app_signals, F_DUPFD_CLOEXEC, 0);
  const int wake = fcntl(app_wake, F_DUPFD_CLOEXEC, 0);
  if (signals < 0 || wake < 0) {
    return ErrnoStatus(errno, "copying a descriptor");
  }
  std::thread([signals, wake] {
    pollfd ready{signals, POLLIN, 0};
    while (poll(&ready, 1, -1) != 1) {
    }
    signalfd_siginfo info{};
    (void)!read(signals, &info, sizeof(info));
    LOG_INFO("SIG{}: stopping; ranks keep running",
             sigabbrev_np(static_cast<int>(info.ssi_signo)));
    (void)eventfd_write(wake, 1);
    std::this_thread::sleep_for(kLeaveTime);
    LOG_WARN("a thread hangs: exiting without it");
    _exit(0);
  }).detach();
  return OkStatus();
}

Status RunWorker(const AgentFlags& flags) {
  InitLogging("worker", flags.log_level);
  RedirectGrpcLog(GrpcLog::kToOurs);
  if (!flags.allow_faults.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(EnableFaults(flags.allow_faults));
  }
  if (const Status adopts = agent::BecomeSubreaper(); !adopts.ok()) {
    LOG_WARN("{}", Message(adopts));
  }
  AgentApp app;
  app.signals = BlockSignals({SIGTERM, SIGINT});
  app.leave.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  LOCKSTEP_RETURN_IF_ERROR(LeaveOnSignal(app.signals.get(), app.leave.get()));
  LOCKSTEP_RETURN_IF_ERROR(app.Start(flags));
  return app.Run();
}

}  // namespace
}  // namespace lockstep::worker

int main(int argc, char** argv) {
  lockstep::worker::AgentFlags flags;
  int exit_code = 0;
  if (!lockstep::worker::ParseAgentFlags(argc, argv, &flags, &exit_code))
    return exit_code;
  const lockstep::Status status = lockstep::worker::RunWorker(flags);
  if (!status.ok()) {
    fprintf(stderr, "%slockstep-worker: %s\n",
            std::string(lockstep::ErrorPrefix()).c_str(),
            lockstep::Message(status).c_str());
  }
  lockstep::LeaveProcess(lockstep::DaemonExitCode(status));
}
