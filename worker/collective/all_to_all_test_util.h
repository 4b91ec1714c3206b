// An all-to-all of one rank for tests: its memory, and what must be in it.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_ALL_TO_ALL_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_ALL_TO_ALL_TEST_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// How many elements a rank sends to a rank.
using CountOf = std::function<size_t(int from, int to)>;

// The parts lie in one piece of memory for each direction, with other bytes
// around each part, which stay.
class AllToAllCase {
 public:
  // `allocated`: in memory of the communicator.
  AllToAllCase(Communicator* c, CountOf count_of, DataType type,
               bool allocated = false)
      : rank_(c->rank()),
        size_(c->size()),
        count_of_(std::move(count_of)),
        element_(SizeOf(type)) {
    for (const bool sends : {true, false}) {
      std::vector<PeerPart>& parts = sends ? sends_ : receives_;
      size_t bytes = kAround;
      for (int peer = 0; peer < size_; ++peer) bytes += Room(sends, peer);
      char* data = Memory(c, bytes, allocated);
      data += kAround;
      for (int peer = 0; peer < size_; ++peer) {
        parts.push_back({data, Count(sends, peer)});
        data += Room(sends, peer);
      }
    }
    operation_.kind = CollectiveKind::kAllToAll;
    operation_.slice = {*c->AnyMemory(), 0, Largest(), type};
    operation_.sends = sends_;
    operation_.receives = receives_;
    Fill();
  }
  AllToAllCase(const AllToAllCase&) = delete;
  AllToAllCase& operator=(const AllToAllCase&) = delete;

  Operation& operation() { return operation_; }

  void Fill() {
    for (const Block& memory : memories_) {
      std::memset(memory.data, kMark, memory.bytes);
    }
    for (int to = 0; to < size_; ++to) {
      const PeerPart& part = sends_[to];
      auto* const data = static_cast<unsigned char*>(part.data);
      for (size_t i = 0; i < part.count * element_; ++i) {
        data[i] = ByteOf(rank_, to, i);
      }
    }
  }

  // "", or the first byte that is wrong.
  std::string Wrong() const {
    for (int peer = 0; peer < size_; ++peer) {
      for (const bool sent : {true, false}) {
        const PeerPart& part = sent ? sends_[peer] : receives_[peer];
        const auto* const data = static_cast<const unsigned char*>(part.data);
        const size_t bytes = part.count * element_;
        for (size_t i = 0; i < bytes; ++i) {
          if (data[i] !=
              (sent ? ByteOf(rank_, peer, i) : ByteOf(peer, rank_, i))) {
            return fmt::format("byte {} of {} {} rank {}", i, bytes,
                               sent ? "sent to" : "received from", peer);
          }
        }
        for (size_t i = 1; i <= kAround; ++i) {
          if (data[bytes + i - 1] != kMark || *(data - i) != kMark) {
            return fmt::format("what is around the part of rank {}", peer);
          }
        }
      }
    }
    return "";
  }

  // All that is received, and around it, is as Fill left it.
  bool Untouched() const {
    return std::all_of(memories_[1].data,
                       memories_[1].data + memories_[1].bytes,
                       [](char byte) { return byte == kMark; });
  }

 private:
  static constexpr size_t kAround = 64;
  static constexpr char kMark = 0x5a;
  struct Block {
    char* data = nullptr;
    size_t bytes = 0;
  };

  static unsigned char ByteOf(int from, int to, size_t i) {
    const size_t mixed = i * 31 + static_cast<size_t>(from) * 101 +
                         static_cast<size_t>(to) * 7 + i / 251;
    return static_cast<unsigned char>(mixed % 253);
  }
  size_t Count(bool sends, int peer) const {
    return sends ? count_of_(rank_, peer) : count_of_(peer, rank_);
  }
  // Of a part and what is behind it, aligned for every type.
  size_t Room(bool sends, int peer) const {
    return (Count(sends, peer) * element_ + kAround + 7) / 8 * 8 + kAround;
  }
  size_t Largest() const {
    size_t largest = 0;
    for (int from = 0; from < size_; ++from) {
      size_t sum = 0;
      for (int to = 0; to < size_; ++to) {
        if (to != from) sum += count_of_(from, to);
      }
      largest = std::max(largest, sum);
    }
    return largest;
  }
  char* Memory(Communicator* c, size_t bytes, bool allocated) {
    char* data = nullptr;
    if (allocated) {
      data = static_cast<char*>((*c->Allocate(bytes))->data);
    } else {
      own_.emplace_back(bytes / sizeof(uint64_t) + 1);
      data = reinterpret_cast<char*>(own_.back().data());
    }
    memories_.push_back({data, bytes});
    return data;
  }

  const int rank_;
  const int size_;
  const CountOf count_of_;
  const size_t element_;
  std::vector<std::vector<uint64_t>> own_;
  std::vector<Block> memories_;
  std::vector<PeerPart> sends_;
  std::vector<PeerPart> receives_;
  Operation operation_;
};

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_ALL_TO_ALL_TEST_UTIL_H_
