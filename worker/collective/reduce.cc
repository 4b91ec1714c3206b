#include "worker/collective/reduce.h"

#include <cstdint>
#include <type_traits>

// The loops below may run in place (out == a) but carry nothing from one
// element to the next; without this the compiler tests for overlap.
#if defined(__clang__)
#define LOCKSTEP_INDEPENDENT_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT_LOOP _Pragma("GCC ivdep")
#endif

namespace lockstep {
namespace {

struct Sum {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct Min {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      return b != b || b < a ? b : a;
    } else {
      return b < a ? b : a;
    }
  }
};
struct Max {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return a;
      return b != b || a < b ? b : a;
    } else {
      return a < b ? b : a;
    }
  }
};

template <typename T, typename Op>
void Reduce(void* out, const void* a, const void* b, size_t count) {
  T* const o = static_cast<T*>(out);
  const T* const x = static_cast<const T*>(a);
  const T* const y = static_cast<const T*>(b);
  LOCKSTEP_INDEPENDENT_LOOP
  for (size_t i = 0; i < count; ++i) o[i] = Op::template Apply<T>(x[i], y[i]);
}

template <typename T>
ReduceFunction ForOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return Reduce<T, Sum>;
    case ReduceOp::kMin:
      return Reduce<T, Min>;
    case ReduceOp::kMax:
      return Reduce<T, Max>;
  }
  return nullptr;
}

}  // namespace

ReduceFunction ReduceFunctionFor(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kFloat32:
      return ForOp<float>(op);
    case DataType::kFloat64:
      return ForOp<double>(op);
    case DataType::kInt32:
      return ForOp<int32_t>(op);
    case DataType::kInt64:
      return ForOp<int64_t>(op);
    case DataType::kUint8:
      return ForOp<uint8_t>(op);
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return nullptr;
  }
  return nullptr;
}

}  // namespace lockstep
