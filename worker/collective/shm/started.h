// The record of an operation that a rank started, for its peers: they compare
// it with their own. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_STARTED_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_STARTED_H_

#include <cstdint>
#include <string>

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::shm {

struct Started {
  OperationWords words;  // kPrivate may be in `what`
  OperationWords part_of;
  uint64_t place = 0;

  static constexpr uint64_t kPrivate = uint64_t{1} << 63;

  // `operation` passed CheckOperation.
  static Started Of(const Operation& operation);

  bool is_private() const { return (words.what & kPrivate) != 0; }
  bool SameAs(const Started& other) const {
    return Common() == other.Common() && part_of == other.part_of;
  }
  // "all-reduce (sum) of 5 float32"; also for values that a peer wrote.
  std::string Describe() const;

 private:
  // The place of the memory may differ between ranks.
  OperationWords Common() const {
    return {words.what & ~kPrivate, words.count};
  }
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_STARTED_H_
