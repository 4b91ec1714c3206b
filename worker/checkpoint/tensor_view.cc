#include "worker/checkpoint/tensor_view.h"

#include <algorithm>
#include <array>

#include "common/base/crc32c.h"
#include "common/base/hash.h"

namespace lockstep::worker::checkpoint {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  uint64_t size;
};

constexpr std::array<DTypeInfo, 8> kDTypes = {{
    {DType::kF32, "F32", 4},
    {DType::kF64, "F64", 8},
    {DType::kF16, "F16", 2},
    {DType::kBf16, "BF16", 2},
    {DType::kI32, "I32", 4},
    {DType::kI64, "I64", 8},
    {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1},
}};

constexpr size_t kMaxDimensions = 32;
constexpr size_t kMaxTensorName = 512;
constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 46;

uint64_t Mix(uint64_t x) { return SplitMix(x + kSplitMixIncrement); }

}  // namespace

std::string_view DTypeName(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].name;
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

uint64_t DTypeSize(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].size;
}

StatusOr<uint64_t> TensorBytes(DType dtype, std::span<const int64_t> shape) {
  if (shape.size() > kMaxDimensions) {
    return InvalidArgument("{} dimensions, at most {} are allowed",
                           shape.size(), kMaxDimensions);
  }
  // A zero makes the tensor empty wherever it stands, so it is looked for
  // before the product is bounded.
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  uint64_t bytes = DTypeSize(dtype);
  for (int64_t dimension : shape) {
    if (dimension < 0) {
      return InvalidArgument("dimension {} is negative", dimension);
    }
    if (empty) continue;
    if (static_cast<uint64_t>(dimension) > kMaxTensorBytes / bytes) {
      return InvalidArgument("its shape makes it larger than {} bytes",
                             kMaxTensorBytes);
    }
    bytes *= static_cast<uint64_t>(dimension);
  }
  return empty ? 0 : bytes;
}

Status CheckTensor(const TensorView& tensor) {
  const bool printable =
      std::all_of(tensor.name.begin(), tensor.name.end(),
                  [](char c) { return c >= 0x20 && c < 0x7f; });
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorName ||
      !printable) {
    return InvalidArgument(
        "a tensor name of {} characters is not 1 to {} printable ASCII "
        "characters",
        tensor.name.size(), kMaxTensorName);
  }
  auto bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) {
    return Annotate(bytes.status(), fmt::format("tensor {}", tensor.name));
  }
  if (*bytes != tensor.bytes) {
    return InvalidArgument("tensor {}: has {} bytes, but its shape needs {}",
                           tensor.name, tensor.bytes, *bytes);
  }
  return OkStatus();
}

uint64_t StateHash(std::span<const TensorView> tensors) {
  uint64_t hash = Mix(tensors.size());
  for (const TensorView& tensor : tensors) {
    std::string header =
        fmt::format("{}|{}", DTypeName(tensor.dtype), tensor.name);
    for (int64_t dimension : tensor.shape) {
      header += fmt::format("|{}", dimension);
    }
    hash = Mix(hash ^
               (uint64_t{Crc32c(header)} << 32 | Crc32c(tensor.contents())));
  }
  return hash;
}

}  // namespace lockstep::worker::checkpoint
