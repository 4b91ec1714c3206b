// The sentences of a group's errors. Pure.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_ERRORS_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_ERRORS_H_

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep::worker::process_group {

// Returns `status`, an error of a communicator, with what this rank was doing
// behind it: "the connection to rank 1 is lost, during reduce (sum) of 5
// float32 to rank 0". Where the sentence says that already, and for aborts, it
// stays as it is. Code, reason and lost peers stay.
Status During(const Status& status, std::string_view doing);

// Returns `text` without a "LABEL: " at its beginning: for who puts the label
// there again.
std::string WithoutLabel(std::string_view text, std::string_view label);

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_ERRORS_H_
