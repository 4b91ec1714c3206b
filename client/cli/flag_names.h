// Fields of the API, as errors and notes name them, in the words of who wrote a
// command line and no file. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_FLAG_NAMES_H_
#define LOCKSTEP_CLIENT_CLI_FLAG_NAMES_H_

#include <string>

#include "common/base/status.h"

namespace lockstep {

// "trainingInput.masterType: must be ..." -> "--master-machine-type: must be
// ..."; a text that begins with no field of `jobs submit training` stays.
std::string WithTrainingFlags(const std::string& text);
// The same of "spec.priority: ..." and `lockstep submit`.
std::string WithSubmitFlags(const std::string& text);

// The same of an error, whose code and reason stay.
Status WithTrainingFlags(const Status& status);
Status WithSubmitFlags(const Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_FLAG_NAMES_H_
