// The version of lockstep from CMake's project(): "0.1.0".
#ifndef LOCKSTEP_COMMON_BASE_VERSION_H_
#define LOCKSTEP_COMMON_BASE_VERSION_H_

namespace lockstep {

extern const char kVersion[];

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_VERSION_H_
