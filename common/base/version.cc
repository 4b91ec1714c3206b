#include "common/base/version.h"

namespace lockstep {

const char kVersion[] = LOCKSTEP_VERSION;

}  // namespace lockstep
