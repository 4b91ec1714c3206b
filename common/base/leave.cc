#include "common/base/leave.h"

#include <unistd.h>

#include <cstdio>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace lockstep {

void LeaveProcess(int code) {
  std::fflush(nullptr);
#if defined(__SANITIZE_ADDRESS__)
  __lsan_do_leak_check();  // It would run at exit.
#endif
  _exit(code);
}

}  // namespace lockstep
