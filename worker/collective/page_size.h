// Sizes of a page of memory, in bytes, on x86-64.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_PAGE_SIZE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_PAGE_SIZE_H_

#include <cstddef>

namespace lockstep::worker::collective {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_PAGE_SIZE_H_
