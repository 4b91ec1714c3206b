#include "worker/process_group/group_test_util.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep::worker::process_group {
namespace {

// Calls f with a value of what stores the type; 16-bit floats are handled
// before.
template <typename F>
auto WithType(Type type, const F& f) {
  switch (type) {
    case Type::kFloat32:
      return f(float());
    case Type::kFloat64:
      return f(double());
    case Type::kInt32:
      return f(int32_t());
    case Type::kInt64:
      return f(int64_t());
    case Type::kInt8:
      return f(int8_t());
    case Type::kInt16:
      return f(int16_t());
    case Type::kFloat16:
      return f(_Float16());
    default:
      return f(uint8_t());
  }
}

}  // namespace

size_t Array::SizeOf(Type type) {
  if (type == Type::kBfloat16) return 2;
  return WithType(type, [](auto value) { return sizeof(value); });
}

Array::Array(Type type, size_t count)
    : type_(type),
      count_(count),
      bytes_(count * SizeOf(type) + 2 * kGuard, kMark) {}

double Array::Get(size_t i) const {
  if (type_ == Type::kBfloat16) {
    uint16_t bits;
    std::memcpy(&bits, data() + 2 * i, 2);
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  return WithType(type_, [&](auto value) {
    std::memcpy(&value, data() + i * sizeof(value), sizeof(value));
    return static_cast<double>(value);
  });
}

void Array::Set(size_t i, double value) {
  if (type_ == Type::kBfloat16) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    const auto upper = static_cast<uint16_t>(bits >> 16);
    std::memcpy(data() + 2 * i, &upper, 2);
    return;
  }
  WithType(type_, [&](auto stored) {
    stored = static_cast<decltype(stored)>(value);
    std::memcpy(data() + i * sizeof(stored), &stored, sizeof(stored));
  });
}

std::vector<Span> Array::Whole() { return {{data(), count_}}; }

std::vector<Span> Array::Cut(size_t pieces) {
  const size_t element = SizeOf(type_);
  pieces_.clear();
  std::vector<Span> spans;
  for (size_t i = 0; i < pieces; ++i) {
    const size_t begin = count_ * i / pieces;
    const size_t end = count_ * (i + 1) / pieces;
    auto& piece = pieces_.emplace_back((end - begin) * element + 16);
    std::memcpy(piece.data(), data() + begin * element,
                (end - begin) * element);
    spans.push_back({piece.data(), end - begin});
  }
  return spans;
}

void Array::Join() {
  size_t at = 0;
  for (const auto& piece : pieces_) {
    std::memcpy(data() + at, piece.data(), piece.size() - 16);
    at += piece.size() - 16;
  }
}

bool Array::Intact() const {
  const auto marked = [](unsigned char byte) { return byte == kMark; };
  return std::all_of(bytes_.begin(), bytes_.begin() + kGuard, marked) &&
         std::all_of(bytes_.end() - kGuard, bytes_.end(), marked);
}

}  // namespace lockstep::worker::process_group
