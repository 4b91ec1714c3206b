#include "worker/collective/address_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "worker/collective/page_size.h"

namespace lockstep::worker::collective {
namespace {

constexpr size_t kLeast = size_t{64} << 20;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

StatusOr<std::unique_ptr<AddressRange>> AddressRange::Reserve() {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t bytes = std::min(pages * page, kMostAddresses) / kHugePage * kHugePage;
  for (bytes = std::max(bytes, kLeast);; bytes = bytes / 2) {
    auto range = Reserve(bytes / kHugePage * kHugePage);
    if (range.ok() || bytes / 2 < kLeast) return range;
  }
}

StatusOr<std::unique_ptr<AddressRange>> AddressRange::Reserve(size_t bytes) {
  void* const room =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, kPrivate, -1, 0);
  if (room == MAP_FAILED) {
    return ResourceExhausted("no address space for {} bytes of gradients",
                             bytes);
  }
  auto* const begin = static_cast<unsigned char*>(room);
  const size_t over = reinterpret_cast<uintptr_t>(begin) % kHugePage;
  const size_t skip = over == 0 ? 0 : kHugePage - over;
  if (skip > 0) munmap(begin, skip);
  if (kHugePage > skip) munmap(begin + skip + bytes, kHugePage - skip);
  return std::unique_ptr<AddressRange>(new AddressRange(begin + skip, bytes));
}

AddressRange::~AddressRange() { munmap(data_, bytes_); }

Status AddressRange::Map(int file, off_t offset, size_t bytes) {
  if (taken_) {
    return FailedPrecondition(
        "the gradients' addresses are in use: the communicator before must go "
        "first");
  }
  const size_t length = std::min(bytes, bytes_);
  // One call: at no time is there nothing at these addresses.
  if (mmap(data_, length, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
           offset) == MAP_FAILED) {
    return ErrnoStatus(errno, "mapping memory for gradients");
  }
  taken_ = true;
  if (madvise(data_, length, MADV_DONTFORK) != 0) {
    const int error = errno;
    Clear();
    return ErrnoStatus(error, "keeping gradients from children");
  }
  // Both only where the kernel likes.
  madvise(data_, length, MADV_DONTDUMP);
  madvise(data_, length, MADV_HUGEPAGE);
  return OkStatus();
}

// Where it fails, the memory stays until the next generation's is mapped.
void AddressRange::Clear() {
  taken_ = false;
  mmap(data_, bytes_, PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED, -1, 0);
}

}  // namespace lockstep::worker::collective
