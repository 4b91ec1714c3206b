// The job that owns a directory of logs, as the log store needs it.
#ifndef LOCKSTEP_SERVER_CORE_LOG_OWNER_H_
#define LOCKSTEP_SERVER_CORE_LOG_OWNER_H_

#include <optional>

#include "common/base/clock.h"

namespace lockstep::server {

struct LogOwner {
  // False if no existing job owns the directory.
  bool known = false;
  // nullopt if the job has not ended, or is unknown.
  std::optional<WallTime> end_time;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_LOG_OWNER_H_
