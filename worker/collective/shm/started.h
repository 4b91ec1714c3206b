// What a rank says that it started: what its peers compare and need to know.
// Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_STARTED_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_STARTED_H_

#include <cstdint>
#include <string>

#include "worker/collective/communicator.h"

namespace lockstep::shm {

struct Started {
  uint64_t what = 0;  // kind, op, type, root, tag; bit 63: private memory
  uint64_t count = 0;
  uint64_t place = 0;

  static constexpr uint64_t kPrivate = uint64_t{1} << 63;

  // Of an operation that passed CheckOperation. What has no meaning for its
  // kind is 0, so that it is not compared.
  static Started Of(const Operation& operation);

  bool is_private() const { return (what & kPrivate) != 0; }
  bool SameAs(const Started& other) const {
    return (what & ~kPrivate) == (other.what & ~kPrivate) &&
           count == other.count;
  }
  // "all-reduce (sum) of 5 float32"; of values of others, too.
  std::string Describe() const;
};

}  // namespace lockstep::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_STARTED_H_
