#include "sdk/mpi/fail.h"

#include <cstdarg>
#include <cstdio>
#include <system_error>

namespace lockstep::mpi {

int32_t Fail(lockstep_error* error, int32_t code, const char* format, ...) {
  error->code = code;
  error->reason[0] = '\0';
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->message, sizeof(error->message), format, arguments);
  va_end(arguments);
  return code;
}

int32_t FailErrno(lockstep_error* error, int number, const char* what) {
  return Fail(error, LOCKSTEP_UNAVAILABLE, "%s: %s", what,
              std::generic_category().message(number).c_str());
}

}  // namespace lockstep::mpi
