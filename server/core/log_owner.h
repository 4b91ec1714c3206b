// Whose a directory of logs is: told by who has the jobs, asked by who keeps
// the logs.
#ifndef LOCKSTEP_SERVER_CORE_LOG_OWNER_H_
#define LOCKSTEP_SERVER_CORE_LOG_OWNER_H_

#include <optional>

#include "common/base/clock.h"

namespace lockstep {

struct LogOwner {
  // False: of no job that there is.
  bool known = false;
  // nullopt: it goes on, or is not known.
  std::optional<WallTime> end_time;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_LOG_OWNER_H_
