#include "worker/shim/container_report.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>

#include "worker/shim/init_report.h"

namespace lockstep::worker::shim {

bool ContainerReport::Take(Fd* pipe) {
  if (!*pipe) return false;
  InitReport report;
  const ssize_t n = read(pipe->get(), &report, sizeof(report));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n != sizeof(report) || !report.Valid()) {
    // Its writer is gone, or is none that this shim understands.
    pipe->Reset();
    return false;
  }
  switch (report.kind) {
    case InitReport::Kind::kStarted:
      started = true;
      break;
    case InitReport::Kind::kNotStarted:
      start_error = std::max(report.value, 1);
      program = report.program;
      break;
    case InitReport::Kind::kEnded:
      ended = started;
      wait_status = report.value;
      oom_kills = report.oom_kills;
      break;
  }
  return true;
}

}  // namespace lockstep::worker::shim
