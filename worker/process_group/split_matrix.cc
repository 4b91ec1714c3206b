#include "worker/process_group/split_matrix.h"

#include <algorithm>

namespace lockstep::worker::process_group {

Status SplitMatrix::Check() const {
  for (size_t from = 0; from < n_; ++from) {
    for (size_t to = 0; to < n_; ++to) {
      if (Sends(from, to) == Expects(to, from)) continue;
      return FailedPrecondition(
          "rank {} sends {} elements to rank {}, which expects {}", from,
          Sends(from, to), to, Expects(to, from));
    }
  }
  return OkStatus();
}

uint64_t SplitMatrix::LargestInput() const {
  uint64_t largest = 0;
  for (size_t from = 0; from < n_; ++from) {
    uint64_t sum = 0;
    for (size_t to = 0; to < n_; ++to) sum += Sends(from, to);
    largest = std::max(largest, sum);
  }
  return largest;
}

uint64_t SplitMatrix::LargestToOthers() const {
  uint64_t largest = 0;
  for (size_t from = 0; from < n_; ++from) {
    uint64_t sum = 0;
    for (size_t to = 0; to < n_; ++to) {
      if (to != from) sum += Sends(from, to);
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

SplitMatrix::Piece SplitMatrix::PieceIn(int from, int to, size_t first,
                                        size_t count) const {
  size_t begin = 0;
  for (int rank = 0; rank < to; ++rank) begin += Sends(from, rank);
  const size_t end = begin + Sends(from, to);
  const size_t low = std::max(begin, first);
  const size_t high = std::min(end, first + count);
  if (low >= high) return {};
  size_t before = 0;
  for (int rank = 0; rank < from; ++rank) before += Expects(to, rank);
  return {low - first, before + (low - begin), high - low};
}

}  // namespace lockstep::worker::process_group
