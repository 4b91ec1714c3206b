#include "sdk/include/lockstep/lockstep.h"

const char* lockstep_version() { return LOCKSTEP_VERSION; }
