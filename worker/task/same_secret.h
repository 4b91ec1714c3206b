// Compares secrets that authenticate a peer. Std only: the shim uses it, too.
#ifndef LOCKSTEP_WORKER_TASK_SAME_SECRET_H_
#define LOCKSTEP_WORKER_TASK_SAME_SECRET_H_

#include <cstddef>
#include <string_view>

namespace lockstep::worker::task {

// Takes the same time for wrong and right secrets of the same length.
inline bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_SAME_SECRET_H_
