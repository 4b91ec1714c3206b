// A file or folder in a task's working directory, as users write it. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_WORK_PLACE_H_
#define LOCKSTEP_CLIENT_CLI_WORK_PLACE_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace lockstep::cli {

struct WorkPlace {
  int32_t rank = 0;
  // Empty for the directory itself.
  std::string path;
};

// Parses "RANK" or "RANK/PATH". InvalidArgument for other forms.
StatusOr<WorkPlace> ParseWorkPlace(const std::string& text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_WORK_PLACE_H_
