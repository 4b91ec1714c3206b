#include "worker/collective/hierarchical/slices.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "worker/collective/reduce.h"
#include "worker/collective/tcp/combine.h"

namespace lockstep::hierarchical {

void Divide(const Slice& slice, int by) {
  const size_t element = SizeOf(slice.type);
  auto* const data =
      static_cast<char*>(slice.buffer->data) + slice.offset * element;
  if (!tcp::Is16Bit(slice.type)) {
    return DivideForMean(slice.type, data, slice.count, by);
  }
  constexpr size_t kBlock = 1024;
  float wide[kBlock];
  for (size_t done = 0; done < slice.count; done += kBlock) {
    const size_t some = std::min(kBlock, slice.count - done);
    tcp::Widen(slice.type, data + done * element, wide, some);
    DivideForMean(DataType::kFloat32, wide, some, by);
    tcp::Narrow(slice.type, wide, data + done * element, some);
  }
}

void ZeroOthers(const Slice& slice, int rank, int size) {
  const size_t bytes = slice.count * SizeOf(slice.type);
  const size_t part = bytes / size;
  auto* const data = static_cast<char*>(slice.buffer->data) +
                     slice.offset * SizeOf(slice.type);
  std::memset(data, 0, rank * part);
  std::memset(data + (rank + 1) * part, 0, bytes - (rank + 1) * part);
}

bool Apart(const Slice& a, const Slice& b) {
  const auto begin = [](const Slice& slice) {
    return reinterpret_cast<uintptr_t>(slice.buffer->data) +
           slice.offset * SizeOf(slice.type);
  };
  const auto end = [&](const Slice& slice) {
    return begin(slice) + slice.count * SizeOf(slice.type);
  };
  return end(a) <= begin(b) || end(b) <= begin(a);
}

}  // namespace lockstep::hierarchical
