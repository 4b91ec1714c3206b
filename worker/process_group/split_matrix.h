// How many elements each rank of an all-to-all sends to each. Pure.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_SPLIT_MATRIX_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_SPLIT_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::process_group {

class SplitMatrix {
 public:
  // `all` has 2 n numbers of each rank: the splits of its input, then those of
  // its output.
  SplitMatrix(int n, std::vector<uint64_t> all)
      : n_(static_cast<size_t>(n)), all_(std::move(all)) {}

  // FailedPrecondition, naming two ranks: what one sends is not what the other
  // expects. The same on all ranks.
  Status Check() const;

  // Elements of the longest input.
  uint64_t LargestInput() const;

  // The most elements that a rank sends to all others together.
  uint64_t LargestToOthers() const;

  // The elements among [first, first + count) of rank `from`'s input that are
  // for rank `to`.
  struct Piece {
    size_t skip = 0;  // elements after `first`
    size_t to = 0;    // the element of the output where it goes
    size_t count = 0;
  };
  Piece PieceIn(int from, int to, size_t first, size_t count) const;

 private:
  uint64_t Sends(size_t from, size_t to) const {
    return all_[2 * n_ * from + to];
  }
  uint64_t Expects(size_t to, size_t from) const {
    return all_[2 * n_ * to + n_ + from];
  }

  const size_t n_;
  const std::vector<uint64_t> all_;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_SPLIT_MATRIX_H_
