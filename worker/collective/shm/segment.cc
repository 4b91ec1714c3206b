#include "worker/collective/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "worker/collective/page_size.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

namespace lockstep::worker::collective::shm {
namespace {

constexpr size_t kSmallest = size_t{64} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Of memory, with the limits of the process; a multiple of 2 MiB.
size_t WantedBytes(int ranks) {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  size_t bytes =
      RoundUp(std::min(pages, kMostAddresses / ranks / kPage) * kPage,
              kHugePage) +
      kArenaPlace;
  rlimit limit{};
  // Beyond it, ftruncate would raise a signal.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    bytes = limit.rlim_cur / kHugePage * kHugePage;
  }
  return bytes;
}

}  // namespace

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(arena_, other.arena_);
  std::swap(end_, other.end_);
  std::swap(range_, other.range_);
  return *this;
}

Segment::~Segment() {
  if (range_ != nullptr) range_->Clear();
  if (data_ != nullptr) munmap(data_, bytes_);
}

StatusOr<Segment> Segment::Create(int ranks, Fd* file) {
  // Older kernels do not know that flag.
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(memfd_create("lockstep-shm", kFlags | MFD_NOEXEC_SEAL));
  if (!fd) fd = Fd(memfd_create("lockstep-shm", kFlags));
  if (!fd) return ErrnoStatus(errno, "creating shared memory (memfd_create)");
  size_t bytes = WantedBytes(ranks);
  if (bytes < kSmallest) {
    return ResourceExhausted(
        "files may have {} bytes only (RLIMIT_FSIZE); shared memory needs {}",
        bytes, kSmallest);
  }
  for (;; bytes = bytes / 2 / kHugePage * kHugePage) {
    if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
      if (bytes > kSmallest) continue;
      return ErrnoStatus(errno, "sizing shared memory");
    }
    auto segment = MapFile(fd.get(), bytes);
    if (!segment.ok()) {
      if (bytes > kSmallest) continue;
      return segment.status();
    }
    if (fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
      return ErrnoStatus(errno, "sealing shared memory");
    }
    LOCKSTEP_RETURN_IF_ERROR(segment->Populate(0, sizeof(Control)));
    *file = std::move(fd);
    return segment;
  }
}

StatusOr<Segment> Segment::Map(int file, size_t bytes) {
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return FailedPrecondition("its shared memory is not sealed");
  }
  struct stat info {};
  if (fstat(file, &info) != 0) return ErrnoStatus(errno, "reading its size");
  if (bytes < kArenaPlace || info.st_size < 0 ||
      static_cast<size_t>(info.st_size) != bytes) {
    return FailedPrecondition("its shared memory has {} bytes, not {}",
                              info.st_size, bytes);
  }
  return MapFile(file, bytes);
}

StatusOr<Segment> Segment::MapFile(int file, size_t bytes) {
  // Huge pages need the address, too, at a multiple of their size.
  const size_t room = bytes + kHugePage;
  void* const reserved =
      mmap(nullptr, room, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return ResourceExhausted("no address space for {} bytes of shared memory",
                             bytes);
  }
  auto* const begin = static_cast<unsigned char*>(reserved);
  const size_t skip = RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage) -
                      reinterpret_cast<uintptr_t>(begin);
  if (skip > 0) munmap(begin, skip);
  if (kHugePage > skip) munmap(begin + skip + bytes, kHugePage - skip);
  void* const data = mmap(begin + skip, bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    munmap(begin + skip, bytes);
    return ErrnoStatus(error, "mapping shared memory");
  }
  Segment segment(static_cast<unsigned char*>(data), bytes);
  if (madvise(data, bytes, MADV_DONTFORK) != 0) {
    return ErrnoStatus(errno, "keeping shared memory from children");
  }
  // Both only where the kernel likes.
  madvise(data, bytes, MADV_DONTDUMP);
  madvise(data, bytes, MADV_HUGEPAGE);
  return segment;
}

Status Segment::MoveArenaTo(AddressRange* range, int file) {
  const size_t bytes = std::min(bytes_ - kArenaPlace, range->bytes());
  LOCKSTEP_RETURN_IF_ERROR(range->Map(file, kArenaPlace, bytes));
  range_ = range;
  arena_ = range->data();
  end_ = kArenaPlace + bytes;
  return OkStatus();
}

bool Segment::HasRange(uint64_t place, size_t bytes, size_t alignment) const {
  return place >= kArenaPlace && place <= bytes_ && bytes <= bytes_ - place &&
         place % alignment == 0;
}

Status Segment::Populate(size_t place, size_t bytes) const {
  const size_t first = place / kPage * kPage;
  const size_t end = std::min(RoundUp(place + bytes, kPage), bytes_);
  if (first >= end) return OkStatus();
  unsigned char* const begin = place < kArenaPlace ? data_ + first : At(first);
  int tries = 0;
  while (madvise(begin, end - first, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || (errno == EAGAIN && ++tries < 100)) continue;
    // Linux before 5.14 does not know it: pages come when they are touched.
    if (errno == EINVAL) return OkStatus();
    return ResourceExhausted("no memory for {} bytes of shared memory", bytes);
  }
  return OkStatus();
}

StatusOr<size_t> Arena::Allocate(size_t bytes, size_t* rounded) {
  const Status none =
      ResourceExhausted("no memory for a buffer of {} bytes", bytes);
  // An empty buffer has memory too: its address must be its own.
  const size_t size = std::max<size_t>(bytes, 1);
  if (size > segment_->end()) return none;
  const size_t place = RoundUp(used_, size >= kHugePage ? kHugePage : kPage);
  if (place > segment_->end() || size > segment_->end() - place) {
    return none;
  }
  LOCKSTEP_RETURN_IF_ERROR(segment_->Populate(place, size));
  *rounded = RoundUp(size, kPage);
  used_ = place + *rounded;
  return place;
}

}  // namespace lockstep::worker::collective::shm
