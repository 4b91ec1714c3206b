// Replaces API field names in errors and notes by the flags that the user
// wrote. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_FLAG_NAMES_H_
#define LOCKSTEP_CLIENT_CLI_FLAG_NAMES_H_

#include <string>

#include "common/base/status.h"

namespace lockstep::cli {

// "trainingInput.masterType: must be ..." becomes "--master-machine-type: must
// be ...". A text that does not begin with a field of `jobs submit training`
// stays.
std::string WithTrainingFlags(const std::string& text);
// The same for "spec.priority: ..." and `lockstep submit`.
std::string WithSubmitFlags(const std::string& text);

// The same for an error, whose code and reason stay.
Status WithTrainingFlags(const Status& status);
Status WithSubmitFlags(const Status& status);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_FLAG_NAMES_H_
