// Whether a piece is written into its slot through the caches or past them.
// PURE.
//
// Through the caches is quicker for writer and reader together while the last
// reader's processor shares a cache with the writer's: the piece never leaves
// it. Otherwise (two sockets, two core complexes, or a hypervisor that has
// moved a processor there) each line has to be fetched from the other's cache
// to be written. That takes some ten times as long as writing past the caches,
// which takes the same time everywhere (docs/design/collectives.md has the
// figures). So both ways are timed, and the policy changes where one is worse
// by far. The bits that are written are the same.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_STORE_POLICY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_STORE_POLICY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/base/clock.h"

namespace lockstep::worker::collective::shm {

class StorePolicy {
 public:
  // One piece of this many is written the other way, for comparison.
  static constexpr uint32_t kTryEvery = 128;
  static constexpr uint32_t kFirstTry = 4;
  // Writing through the caches may take this many times as long: past them the
  // reader takes longer, too, which this rank does not see.
  static constexpr double kMostRatio = 2.5;
  // Shorter pieces are not timed.
  static constexpr size_t kLeastBytes = size_t{16} << 10;

  // For the next piece.
  bool past_caches() const { return tries_other_ ? !chose_past_ : chose_past_; }

  // The next piece was written in `time`.
  void Add(size_t bytes, Duration time) {
    if (bytes < kLeastBytes) return;
    Recent& recent = past_caches() ? past_ : through_;
    recent.Add(ToSeconds(time) / static_cast<double>(bytes));
    chose_past_ = through_.Median() > kMostRatio * past_.Median();
    tries_other_ = ++pieces_ % kTryEvery == kFirstTry;
  }

 private:
  // The last three: one interruption changes nothing, nor does one piece that
  // happened to be quick.
  class Recent {
   public:
    void Add(double seconds_per_byte) {
      if (count_ == 0) last_.fill(seconds_per_byte);
      last_[count_++ % last_.size()] = seconds_per_byte;
    }
    // Infinite before there is one.
    double Median() const {
      if (count_ == 0) return std::numeric_limits<double>::infinity();
      const auto [a, b, c] = last_;
      return std::max(std::min(a, b), std::min(std::max(a, b), c));
    }

   private:
    std::array<double, 3> last_{};
    uint32_t count_ = 0;
  };

  Recent through_;
  Recent past_;
  bool chose_past_ = false;
  bool tries_other_ = false;
  uint32_t pieces_ = 0;
};

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_STORE_POLICY_H_
