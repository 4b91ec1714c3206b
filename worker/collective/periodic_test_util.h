// Memory whose elements repeat, written and looked at one by one only in the
// first period. Otherwise the arithmetic of a test would take most of its time,
// by far under a sanitizer. Pure.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_PERIODIC_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_PERIODIC_TEST_UTIL_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace lockstep::worker::collective {

// Elements of `size` bytes, `count` of them: write(i) makes the first `period`,
// and the others are copies.
template <typename Write>
void FillPeriodic(void* data, size_t size, size_t count, size_t period,
                  const Write& write) {
  const size_t first = std::min(period, count);
  for (size_t i = 0; i < first; ++i) write(i);
  char* const bytes = static_cast<char*>(data);
  for (size_t done = first * size; done < count * size;) {
    const size_t more = std::min(done, count * size - done);
    std::memcpy(bytes + done, bytes, more);
    done += more;
  }
}

// Returns the first element from `first` to before `end` that is not right(i),
// or `end`. The right value must depend on i % period alone: so an element with
// the bits of the one a period before it is right if that one is.
template <typename Right>
size_t FirstWrong(const void* data, size_t size, size_t first, size_t end,
                  size_t period, const Right& right) {
  const char* const bytes = static_cast<const char*>(data);
  // Whether `count` elements are as those one period before them.
  const auto repeated = [&](size_t from, size_t count) {
    return std::memcmp(bytes + (from - period) * size, bytes + from * size,
                       count * size) == 0;
  };
  const auto find = [&](size_t from, size_t to) {
    while (from < to && right(from)) ++from;
    return from;
  };
  size_t done = std::min(end, first + period);
  const size_t wrong = find(first, done);
  if (wrong < done) return wrong;
  if (done == end || repeated(done, end - done)) return end;
  // Arithmetic may round otherwise elsewhere: by periods.
  while (done < end) {
    const size_t next = std::min(end, done + period);
    if (!repeated(done, next - done)) {
      const size_t other = find(done, next);
      if (other < next) return other;
    }
    done = next;
  }
  return end;
}

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_PERIODIC_TEST_UTIL_H_
