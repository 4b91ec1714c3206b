// One rank's shared memory: an anonymous file (memfd), mapped.
//
// It has no name and disappears with the last mapping, whatever kills the
// ranks. It is larger than what is used: pages exist once they are touched. It
// is sealed against shrinking and growing, so that no peer can take pages away
// from a reader. It is not inherited by fork, and not in core dumps.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_SEGMENT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_SEGMENT_H_

#include <cstddef>
#include <utility>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "worker/collective/address_range.h"
#include "worker/collective/shm/layout.h"

namespace lockstep::worker::collective::shm {

// Movable; unmaps itself.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        arena_(std::exchange(other.arena_, nullptr)),
        end_(std::exchange(other.end_, 0)),
        range_(std::exchange(other.range_, nullptr)) {}
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Makes a segment with as much address space as this host has memory; less
  // where limits require it, or where `ranks` segments of that size would not
  // fit a process. Returns its file, too, for the peers.
  static StatusOr<Segment> Create(int ranks, Fd* file);
  // Maps a peer's segment. FailedPrecondition: it is not sealed, or has another
  // size than `bytes`.
  static StatusOr<Segment> Map(int file, size_t bytes);

  // Maps the arena at the addresses of `range`, too, until the segment is
  // destroyed: At gives those. `file` is the segment's file. Errors as for
  // AddressRange::Map.
  Status MoveArenaTo(AddressRange* range, int file);

  unsigned char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // The address of `place`, which lies in the arena.
  unsigned char* At(uint64_t place) const {
    return arena_ + (place - kArenaPlace);
  }
  // The arena ends before this place.
  size_t end() const { return end_; }
  Control* control() const { return reinterpret_cast<Control*>(data_); }

  // True where [place, place + bytes) lies in the arena and `place` is a
  // multiple of `alignment`.
  bool HasRange(uint64_t place, size_t bytes, size_t alignment) const;

  // Makes the pages of a range present and mapped, so that no step pays for it.
  // ResourceExhausted: the host has no memory for them.
  Status Populate(size_t place, size_t bytes) const;

 private:
  Segment(unsigned char* data, size_t bytes)
      : data_(data), bytes_(bytes), arena_(data + kArenaPlace), end_(bytes) {}
  static StatusOr<Segment> MapFile(int file, size_t bytes);

  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
  unsigned char* arena_ = nullptr;
  size_t end_ = 0;
  AddressRange* range_ = nullptr;
};

// Gives out ranges of a segment's arena, never back. Not synchronised.
class Arena {
 public:
  explicit Arena(const Segment* segment)
      : segment_(segment), used_(kArenaPlace) {}

  // Returns the place of `bytes` zeroed, present bytes in the segment; aligned
  // to a page, or to 2 MiB for allocations of at least that size. *rounded: the
  // bytes that are there.
  StatusOr<size_t> Allocate(size_t bytes, size_t* rounded);

 private:
  const Segment* const segment_;
  size_t used_;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_SEGMENT_H_
