// A native gang of three, for tests of StallWatch.
#ifndef LOCKSTEP_SERVER_CORE_STALL_FIXTURE_H_
#define LOCKSTEP_SERVER_CORE_STALL_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "server/core/stall.h"

namespace lockstep::server {

// Its ranks report every half second.
class StallTest : public testing::Test {
 protected:
  StallTest() {
    watch_.Reset(1);
    for (int32_t rank = 0; rank < 3; ++rank) {
      ranks_[rank].rank = rank;
      Put(rank, "compute");
    }
    Beat();
  }

  void Put(int32_t rank, const std::string& phase) {
    RankProgress& progress = ranks_[rank].progress;
    progress.step = step_;
    progress.committed_step = step_ - 1;
    progress.collectives = step_ * 2 + (phase == "allreduce" ? 1 : 0);
    progress.phase = phase;
  }
  void Beat() {
    now_ += std::chrono::milliseconds(500);
    for (RankStatus& rank : ranks_) {
      if (rank.rank == busy_ || (rank.rank == 2 && also_busy_)) {
        rank.usage.cpu_seconds += 0.4;
      }
      watch_.Take(rank, now_);
    }
  }
  // All go on, a step each `beats`.
  void Steps(int count, int beats = 1) {
    for (int i = 0; i < count; ++i) {
      ++step_;
      for (int32_t rank = 0; rank < 3; ++rank) Put(rank, "compute");
      for (int beat = 0; beat < beats; ++beat) Beat();
      EXPECT_FALSE(Stalled());
    }
  }
  // Rank 1 stands in `phase`, the others wait for it.
  void Freeze(const std::string& phase) {
    for (int32_t rank = 0; rank < 3; ++rank) {
      Put(rank, rank == 1 ? phase : "allreduce");
    }
    Beat();
  }
  // After how long it is called a stall; nullopt: not within `limit`.
  std::optional<Duration> After(Duration limit) {
    const MonoTime began = now_;
    while (now_ - began < limit) {
      if (Stalled()) return now_ - began;
      Beat();
    }
    return std::nullopt;
  }
  std::optional<Stall> Stalled() {
    return watch_.Check({.count = 3, .ended = {}, .away = away_}, now_);
  }

  StallWatch watch_;
  MonoTime now_ = MonoTime(std::chrono::hours(1));
  RankStatus ranks_[3];
  int64_t step_ = 1;
  // Uses the CPU.
  int32_t busy_ = -1;
  std::set<int32_t> away_;
  // So does rank 2.
  bool also_busy_ = false;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_STALL_FIXTURE_H_
