#include "worker/collective/shm/waiter.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "worker/collective/shm/doorbell.h"

namespace lockstep::worker::collective::shm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Looks before the clock is read for the first time: some 0.5 us.
constexpr int kQuickLooks = 32;
constexpr int kLooksPerClock = 32;
// Then it costs others less to be woken.
constexpr Duration kSpin = microseconds(100);
constexpr int kYields = 30;
// Wakers wake; this bounds what a mistake would cost.
constexpr Duration kNap = milliseconds(500);
constexpr Duration kShortNap = microseconds(200);

}  // namespace

Waiter::Waiter(const CommunicatorOptions& options, const Ranks* ranks,
               FailureDetector* detector, bool spins)
    : label_(options.label),
      timeout_(options.operation_timeout),
      ranks_(*ranks),
      detector_(*detector),
      spins_(spins) {}

void Waiter::Wake(uint32_t code) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    Shared<uint32_t>* const word = &ranks_.control(rank)->waiting;
    uint32_t seen = word->load(std::memory_order_relaxed);
    if (seen != code) continue;
    if (word->compare_exchange_strong(seen, wait_code::kAwake)) WakeOn(word);
  }
}

bool Waiter::Met(const Need& need) const {
  constexpr auto kAcquire = std::memory_order_acquire;
  switch (need.kind) {
    case Need::kArrival:
      return ranks_.entry(need.rank).sequence.load(kAcquire) == need.value + 1;
    case Need::kCompletion:
      return ranks_.entry(0).completed.load(kAcquire) >= need.value;
    case Need::kDone:
      return ranks_.control(need.rank)->done.load(kAcquire) > need.value;
    case Need::kGiven:
      return ranks_.control(need.rank)->given.load(kAcquire) > need.value;
    case Need::kReduced:
      return ranks_.control(need.rank)->reduced.load(kAcquire) > need.value;
    case Need::kTaken:
      return ranks_.control(need.rank)->taken.load(kAcquire) > need.value;
  }
  return false;
}

uint32_t Waiter::CodeOf(const Need& need) {
  switch (need.kind) {
    case Need::kArrival:
      return wait_code::Arrival(need.rank);
    case Need::kCompletion:
      return wait_code::kCompletion;
    case Need::kDone:
      return wait_code::Done(need.rank);
    default:
      return wait_code::Stage(need.rank);
  }
}

void Waiter::NoteProcessor() {
  const int processor = sched_getcpu();
  const auto noted = static_cast<uint32_t>(processor < 0 ? 0 : 1 + processor);
  if (noted == processor_) return;
  processor_ = noted;
  ranks_.control(ranks_.rank())
      ->processor.store(noted, std::memory_order_relaxed);
}

// A rank that shares our processor runs once we sleep, and is moved to an idle
// one when it is woken: looking would only keep it from running.
bool Waiter::MaySpin() const {
  if (!spins_) return false;
  if (processor_ == 0) return true;
  const auto shares = [&](int rank) {
    return ranks_.control(rank)->processor.load(std::memory_order_relaxed) ==
           processor_;
  };
  if (need_.rank >= 0) return !shares(need_.rank);
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank() ||
        ranks_.entry(rank).works.load(std::memory_order_relaxed) == 0) {
      continue;
    }
    if (shares(rank)) return false;
  }
  return true;
}

bool Waiter::Wait(MonoTime deadline) {
  NoteProcessor();
  if (MaySpin()) {
    for (int i = 0; i < kQuickLooks; ++i) {
      if (Met(need_)) return true;
      Pause();
    }
  }
  const MonoTime now = MonotonicNow();
  if (!std::exchange(waited_, true)) backstop_ = now + timeout_;
  return Spin(std::max(std::min(deadline, backstop_), now));
}

bool Waiter::Spin(MonoTime deadline) {
  const MonoTime start = MonotonicNow();
  for (int i = 0; !spins_ && i < kYields; ++i) {
    if (Met(need_) || detector_.broken()) return true;
    sched_yield();
  }
  for (int i = 0; spins_; ++i) {
    if (Met(need_) || detector_.broken()) return true;
    Pause();
    if (i % kLooksPerClock != 0) continue;
    if (MonotonicNow() - start > kSpin) break;
    NoteProcessor();
    if (!MaySpin()) break;
  }
  return Sleep(deadline);
}

bool Waiter::Sleep(MonoTime deadline) {
  wait_.Begin(LateRank());
  const bool met = SleepUntilMet(deadline);
  wait_.End();
  return met;
}

// Sleeps until another rank wakes it because of need_; returns as Wait.
bool Waiter::SleepUntilMet(MonoTime deadline) {
  Shared<uint32_t>* const word = &ranks_.control(ranks_.rank())->waiting;
  const uint32_t code = CodeOf(need_);
  const bool woken = need_.kind != Need::kDone;
  for (;;) {
    // Before the look: what it did before leaving counts.
    const bool left = need_.rank >= 0 && detector_.HasLeft(need_.rank);
    if (Met(need_) || detector_.broken()) return true;
    if (left) {
      detector_.Break(
          Unavailable("{}: the connection to rank {} is lost: it left", label_,
                      need_.rank));
      return true;
    }
    const MonoTime now = MonotonicNow();
    if (now >= deadline) return false;
    // Another one may be late by now.
    wait_.SetPeer(LateRank());
    // Asleep it holds no processor.
    processor_ = 0;
    ranks_.control(ranks_.rank())
        ->processor.store(0, std::memory_order_relaxed);
    word->store(code, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!Met(need_) && !detector_.broken() &&
        !(need_.rank >= 0 && detector_.HasLeft(need_.rank))) {
      SleepOn(word, code, std::min(deadline - now, woken ? kNap : kShortNap));
    }
    word->store(wait_code::kAwake, std::memory_order_relaxed);
    NoteProcessor();
  }
}

bool Waiter::IsLate(int rank) const {
  if (rank == ranks_.rank()) return false;
  if (need_.kind == Need::kCompletion) {
    return ranks_.entry(rank).works.load(std::memory_order_relaxed) != 0;
  }
  return !Met({need_.kind, rank, need_.value});
}

int Waiter::LateRank() const {
  if (need_.rank >= 0) return need_.rank;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (IsLate(rank)) return rank;
  }
  return -1;
}

std::string Waiter::LateRanks() const {
  std::string ranks;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (!IsLate(rank)) continue;
    ranks += fmt::format("{}{}", ranks.empty() ? "rank " : ", ", rank);
  }
  return ranks.empty() ? "the last chunks" : ranks;
}

}  // namespace lockstep::worker::collective::shm
