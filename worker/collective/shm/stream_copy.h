// Two ways to copy into memory that another processor reads next.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_STREAM_COPY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_STREAM_COPY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace lockstep::worker::collective::shm {

// Through the caches.
inline void CopyBytes(void* out, const void* in, size_t bytes) {
  std::memcpy(out, in, bytes);
}

// Copies past the caches, so that lines in the last reader's cache need not be
// fetched first (store_policy.h). A processor that sees a later store sees the
// copy, too.
inline void StreamCopy(void* out, const void* in, size_t bytes) {
#if defined(__x86_64__)
  auto* to = static_cast<unsigned char*>(out);
  const auto* from = static_cast<const unsigned char*>(in);
  const size_t first =
      std::min(bytes, -reinterpret_cast<uintptr_t>(to) % sizeof(__m128i));
  std::memcpy(to, from, first);
  size_t i = first;
  for (; i + 64 <= bytes; i += 64) {
    const auto* const line = reinterpret_cast<const __m128i*>(from + i);
    auto* const target = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_loadu_si128(line);
    const __m128i b = _mm_loadu_si128(line + 1);
    const __m128i c = _mm_loadu_si128(line + 2);
    const __m128i d = _mm_loadu_si128(line + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + i, from + i, bytes - i);
  // They are not ordered by a release.
  _mm_sfence();
#else
  std::memcpy(out, in, bytes);
#endif
}

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_STREAM_COPY_H_
