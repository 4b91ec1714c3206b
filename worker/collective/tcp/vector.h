// The elements that one operation works on, and the parts that ranks have in
// them. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_VECTOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_VECTOR_H_

#include <algorithm>
#include <cstddef>

#include "worker/collective/tcp/combine.h"
#include "worker/collective/tcp/ring.h"

namespace lockstep::worker::collective::tcp {

struct Vector {
  char* data;  // borrowed
  size_t count;
  size_t element;            // bytes
  const Combiner* combiner;  // borrowed

  char* at(size_t index) const { return data + index * element; }
  size_t bytes(Range range) const {
    return (range.end - range.begin) * element;
  }
};

// The part of `rank` among `ranks`. Parts are equal where `count` can be
// divided, as all-gather and reduce-scatter need it.
inline Range PartOf(size_t count, int rank, int ranks) {
  if (count % ranks != 0) return PieceOf({0, count}, ranks, rank);
  const size_t part = count / ranks;
  return {rank * part, (rank + 1) * part};
}

// Elements of the largest part.
inline size_t LargestPart(size_t count, int ranks) {
  size_t largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Range part = PartOf(count, rank, ranks);
    largest = std::max(largest, part.end - part.begin);
  }
  return largest;
}

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_VECTOR_H_
