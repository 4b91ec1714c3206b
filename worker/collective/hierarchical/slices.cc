#include "worker/collective/hierarchical/slices.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "worker/collective/reduce.h"
#include "worker/collective/tcp/combine.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

char* DataOf(const Slice& slice) {
  return static_cast<char*>(slice.buffer->data) +
         slice.offset * SizeOf(slice.type);
}

}  // namespace

void Divide(const Slice& slice, int by) {
  DivideForMean(slice.type, DataOf(slice), slice.count, by);
}

void Scale(const Slice& slice, float factor) {
  const size_t element = SizeOf(slice.type);
  char* const data = DataOf(slice);
  constexpr size_t kBlock = 1024;
  float wide[kBlock];
  for (size_t done = 0; done < slice.count; done += kBlock) {
    const size_t some = std::min(kBlock, slice.count - done);
    tcp::Widen(slice.type, data + done * element, wide, some);
    for (size_t i = 0; i < some; ++i) wide[i] *= factor;
    tcp::Narrow(slice.type, wide, data + done * element, some);
  }
}

void ZeroOthers(const Slice& slice, int rank, int size) {
  const size_t bytes = slice.count * SizeOf(slice.type);
  const size_t part = bytes / size;
  char* const data = DataOf(slice);
  std::memset(data, 0, rank * part);
  std::memset(data + (rank + 1) * part, 0, bytes - (rank + 1) * part);
}

bool Apart(const Slice& a, const Slice& b) {
  const auto begin = [](const Slice& slice) {
    return reinterpret_cast<uintptr_t>(DataOf(slice));
  };
  const auto end = [&](const Slice& slice) {
    return begin(slice) + slice.count * SizeOf(slice.type);
  };
  return end(a) <= begin(b) || end(b) <= begin(a);
}

}  // namespace lockstep::worker::collective::hierarchical
