// Reads the reports of a container's init about its program (init_report.h).
#ifndef LOCKSTEP_WORKER_SHIM_CONTAINER_REPORT_H_
#define LOCKSTEP_WORKER_SHIM_CONTAINER_REPORT_H_

#include <cstdint>
#include <string>

#include "common/base/fd.h"

namespace lockstep::worker::shim {

struct ContainerReport {
  // Reads one report. Returns false if there is nothing more for now.
  bool Take(Fd* pipe);

  bool started = false;
  bool ended = false;
  int wait_status = 0;
  uint32_t oom_kills = 0;
  // The errno of a program that did not start, or 0; and which one.
  int start_error = 0;
  std::string program;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_CONTAINER_REPORT_H_
