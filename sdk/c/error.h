// From the errors of the product to those of the C interface.
#ifndef LOCKSTEP_SDK_C_ERROR_H_
#define LOCKSTEP_SDK_C_ERROR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>

#include "common/base/status.h"
#include "sdk/include/lockstep/lockstep.h"

namespace lockstep::c {

// Fills `error`, where it is not null, and returns the code of `status`. Texts
// that are too long are cut at a character's end.
int32_t Return(const Status& status, lockstep_error* error);

// Copies the caller's struct, which may be of an older or a newer version, over
// the defaults in `own`. InvalidArgument: null, a size that no version had, or
// bytes that this version does not know and that are not zero.
Status TakeStruct(const void* theirs, void* own, size_t own_size,
                  const char* name);

// Calls `function`, which returns a Status. Nothing throws over the interface.
template <typename Function>
int32_t Guard(lockstep_error* error, Function function) noexcept {
  try {
    return Return(function(), error);
  } catch (const std::bad_alloc&) {
    return Return(ResourceExhausted("out of memory"), error);
  } catch (const std::exception& e) {
    return Return(Internal("{}", e.what()), error);
  }
}

}  // namespace lockstep::c

#endif  // LOCKSTEP_SDK_C_ERROR_H_
