// The loops of reduce.h, compiled once for each instruction set: included by
// reduce_plain.cc, reduce_avx2.cc and reduce_avx512.cc only.
//
// Everything is in an unnamed namespace and calls nothing of the standard
// library: a function that the linker could share between the files would
// bring instructions where the processor has none. Loops are written so that
// compilers vectorise them; each element is computed alone, so width and
// alignment change no bit. Contraction and reordering stay off.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_REDUCE_LOOPS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_REDUCE_LOOPS_H_

#include <cstddef>
#include <cstdint>

#include "worker/collective/reduce_sets.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

// Outputs may be inputs, but nothing is carried from one element to the next;
// without this the compiler tests for overlap.
#if defined(__clang__)
#define LOCKSTEP_INDEPENDENT_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT_LOOP _Pragma("GCC ivdep")
#endif

namespace lockstep::worker::collective {
namespace {

// IEEE 754 binary16 and the upper half of a binary32.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

inline float AsFloat(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t AsBits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

inline float Quiet(float nan) { return AsFloat(AsBits(nan) | 0x00400000u); }
inline double Quiet(double nan) {
  return __builtin_bit_cast(
      double, __builtin_bit_cast(uint64_t, nan) | 0x0008000000000000u);
}

// As vcvtph2ps does it.
inline float Widen(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16;
  const uint32_t exponent = (half.bits >> 10) & 0x1fu;
  const uint32_t mantissa = half.bits & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x00400000u : 0;
    return AsFloat(sign | 0x7f800000u | (mantissa << 13) | quiet);
  }
  if (exponent == 0) {
    // Exact: a multiple of 2^-24 below 2^-14.
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return AsFloat(sign | AsBits(value));
  }
  return AsFloat(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// As vcvtps2ph does it, to nearest even.
inline Half NarrowToHalf(float value) {
  const uint32_t bits = AsBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {
    half = 0x7c00u;  // 65536 and more
  } else if (magnitude >= 0x38800000u) {
    // The carry of the rounding may reach the exponent, up to infinity.
    const uint32_t odd = (magnitude >> 13) & 1u;
    half = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
  } else {
    // A denormal: adding 0.5 leaves its multiple of 2^-24 in the low bits,
    // rounded to nearest even.
    const float shifted = AsFloat(magnitude) + 0.5f;
    half = AsBits(shifted) - 0x3f000000u;
  }
  return Half{static_cast<uint16_t>(sign | half)};
}

inline float Widen(Bfloat16 value) {
  return AsFloat(static_cast<uint32_t>(value.bits) << 16);
}

inline Bfloat16 NarrowToBfloat16(float value) {
  const uint32_t bits = AsBits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return Bfloat16{static_cast<uint16_t>(
      (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}

// The type in which a stored type is accumulated.
template <typename T>
struct Accumulator {
  using Type = T;
};
template <>
struct Accumulator<Half> {
  using Type = float;
};
template <>
struct Accumulator<Bfloat16> {
  using Type = float;
};

template <typename T>
constexpr bool kIsFloat = false;
template <>
inline constexpr bool kIsFloat<float> = true;
template <>
inline constexpr bool kIsFloat<double> = true;

struct Sum {
  static constexpr bool kMean = false;
  static float Apply(float a, float b) {
    const float sum = a + b;
    return a != a ? Quiet(a) : sum;
  }
  static double Apply(double a, double b) {
    const double sum = a + b;
    return a != a ? Quiet(a) : sum;
  }
  static int32_t Apply(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) +
                                static_cast<uint32_t>(b));
  }
  static int64_t Apply(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                static_cast<uint64_t>(b));
  }
  static uint8_t Apply(uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(a + b);
  }
  static int8_t Apply(int8_t a, int8_t b) { return static_cast<int8_t>(a + b); }
  static int16_t Apply(int16_t a, int16_t b) {
    return static_cast<int16_t>(a + b);
  }
};
// Narrow integers are multiplied as int, where no product of them overflows.
struct Product {
  static constexpr bool kMean = false;
  static float Apply(float a, float b) {
    const float product = a * b;
    return a != a ? Quiet(a) : product;
  }
  static double Apply(double a, double b) {
    const double product = a * b;
    return a != a ? Quiet(a) : product;
  }
  static int32_t Apply(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) *
                                static_cast<uint32_t>(b));
  }
  static int64_t Apply(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) *
                                static_cast<uint64_t>(b));
  }
  static uint8_t Apply(uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(a * b);
  }
  static int8_t Apply(int8_t a, int8_t b) { return static_cast<int8_t>(a * b); }
  static int16_t Apply(int16_t a, int16_t b) {
    return static_cast<int16_t>(a * b);
  }
};
struct Mean : Sum {
  static constexpr bool kMean = true;
};
struct Min {
  static constexpr bool kMean = false;
  template <typename T>
  static T Apply(T a, T b) {
    const T least = b < a ? b : a;
    if constexpr (!kIsFloat<T>) return least;
    const T other = b != b ? b : least;
    return a != a ? a : other;
  }
};
struct Max {
  static constexpr bool kMean = false;
  template <typename T>
  static T Apply(T a, T b) {
    const T most = a < b ? b : a;
    if constexpr (!kIsFloat<T>) return most;
    const T other = b != b ? b : most;
    return a != a ? a : other;
  }
};

// Elements between two passes: 4 to 8 KiB of accumulators, in the L1 cache.
constexpr size_t kBlock = 1024;

template <typename T>
void WidenBlock(T* acc, const T* in, size_t count) {
  __builtin_memcpy(acc, in, count * sizeof(T));
}
inline void WidenBlock(float* acc, const Bfloat16* in, size_t count) {
  LOCKSTEP_INDEPENDENT_LOOP
  for (size_t i = 0; i < count; ++i) acc[i] = Widen(in[i]);
}
inline void WidenBlock(float* acc, const Half* in, size_t count) {
  size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(acc + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                  reinterpret_cast<const __m128i*>(in + i))));
  }
#endif
  for (; i < count; ++i) acc[i] = Widen(in[i]);
}

template <typename T>
void NarrowBlock(T* out, const T* acc, size_t count) {
  __builtin_memcpy(out, acc, count * sizeof(T));
}
inline void NarrowBlock(Bfloat16* out, const float* acc, size_t count) {
  LOCKSTEP_INDEPENDENT_LOOP
  for (size_t i = 0; i < count; ++i) out[i] = NarrowToBfloat16(acc[i]);
}
inline void NarrowBlock(Half* out, const float* acc, size_t count) {
  size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(acc + i),
                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#endif
  for (; i < count; ++i) out[i] = NarrowToHalf(acc[i]);
}

template <typename Op, typename T>
void Fold(T* acc, const T* in, size_t count) {
  LOCKSTEP_INDEPENDENT_LOOP
  for (size_t i = 0; i < count; ++i) acc[i] = Op::Apply(acc[i], in[i]);
}
template <typename Op>
void Fold(float* acc, const Bfloat16* in, size_t count) {
  LOCKSTEP_INDEPENDENT_LOOP
  for (size_t i = 0; i < count; ++i) acc[i] = Op::Apply(acc[i], Widen(in[i]));
}
template <typename Op>
void Fold(float* acc, const Half* in, size_t count) {
  alignas(64) float wide[kBlock];
  WidenBlock(wide, in, count);
  Fold<Op>(acc, wide, count);
}

// Two operands of a type that is its own accumulator, to one or two outputs,
// in one pass. out1 may be out0.
template <typename T, typename Op>
void ReducePair(T* out0, T* out1, const T* a, const T* b, size_t count) {
  LOCKSTEP_INDEPENDENT_LOOP
  for (size_t i = 0; i < count; ++i) {
    T value = Op::Apply(a[i], b[i]);
    if constexpr (Op::kMean) value = value / T{2};
    out0[i] = value;
    out1[i] = value;
  }
}

template <typename T, typename Op>
void ReduceAll(void* const* outs, size_t out_count, const void* const* ins,
               size_t in_count, size_t count) {
  using Acc = typename Accumulator<T>::Type;
  const auto in = [&](size_t k) { return static_cast<const T*>(ins[k]); };
  const auto out = [&](size_t k) { return static_cast<T*>(outs[k]); };
  if constexpr (sizeof(Acc) == sizeof(T)) {
    if (in_count == 2 && out_count <= 2) {
      return ReducePair<T, Op>(out(0), out(out_count - 1), in(0), in(1), count);
    }
  }
  alignas(64) Acc acc[kBlock];
  for (size_t base = 0; base < count; base += kBlock) {
    const size_t some = count - base < kBlock ? count - base : kBlock;
    WidenBlock(acc, in(0) + base, some);
    for (size_t k = 1; k < in_count; ++k) Fold<Op>(acc, in(k) + base, some);
    if constexpr (Op::kMean) {
      const Acc divisor = static_cast<Acc>(in_count);
      for (size_t i = 0; i < some; ++i) acc[i] = acc[i] / divisor;
    }
    for (size_t k = 0; k < out_count; ++k) {
      NarrowBlock(out(k) + base, acc, some);
    }
  }
}

template <typename T>
constexpr ReduceAllFunction MeanOf() {
  if constexpr (kIsFloat<typename Accumulator<T>::Type>) {
    return ReduceAll<T, Mean>;
  }
  return nullptr;
}

// The columns are kSum, kMin, kMax, kMean, kProduct; the rows are
// LOCKSTEP_REDUCE_TABLE.
#define LOCKSTEP_REDUCE_ROW(T)                                            \
  {                                                                       \
    ReduceAll<T, Sum>, ReduceAll<T, Min>, ReduceAll<T, Max>, MeanOf<T>(), \
        ReduceAll<T, Product>                                             \
  }
#define LOCKSTEP_REDUCE_TABLE                                         \
  {                                                                   \
    {                                                                 \
      LOCKSTEP_REDUCE_ROW(float), LOCKSTEP_REDUCE_ROW(double),        \
          LOCKSTEP_REDUCE_ROW(Half), LOCKSTEP_REDUCE_ROW(Bfloat16),   \
          LOCKSTEP_REDUCE_ROW(int32_t), LOCKSTEP_REDUCE_ROW(int64_t), \
          LOCKSTEP_REDUCE_ROW(uint8_t), LOCKSTEP_REDUCE_ROW(int8_t),  \
          LOCKSTEP_REDUCE_ROW(int16_t)                                \
    }                                                                 \
  }

}  // namespace
}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_REDUCE_LOOPS_H_
