// A named tensor without a framework: what a trainer hands over to be saved
// and gets back when it restores. PURE.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_TENSOR_VIEW_H_
#define LOCKSTEP_WORKER_CHECKPOINT_TENSOR_VIEW_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::checkpoint {

enum class DType { kF32, kF64, kF16, kBf16, kI32, kI64, kU8, kBool };

// The name in safetensors files: "F32", "BF16", "BOOL".
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);
// Bytes of one element.
uint64_t DTypeSize(DType dtype);

// Row-major and contiguous, little-endian. An empty shape is a scalar. `data`
// is not owned and must hold still while the view is used.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  uint64_t bytes = 0;

  std::string_view contents() const {
    return {static_cast<const char*>(data), static_cast<size_t>(bytes)};
  }
};

// The size of a tensor in bytes; InvalidArgument for a negative dimension or
// a product that does not fit.
StatusOr<uint64_t> TensorBytes(DType dtype, std::span<const int64_t> shape);

// Names are 1 to 512 printable ASCII characters, `bytes` matches type and
// shape.
Status CheckTensor(const TensorView& tensor);

// A number that differs between replicas whose tensors differ in a name, type,
// shape or bit (CRC32C of each, mixed in order to 64 bits). For finding
// accidents, not attackers. Reads all the data once, at memory speed.
uint64_t StateHash(std::span<const TensorView> tensors);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_TENSOR_VIEW_H_
