#include "tests/bench/core_distance.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/bench/peers/probe.h"
#include "worker/collective/shm/stream_copy.h"

namespace lockstep {
namespace {

constexpr size_t kPiece = size_t{64} << 10;
constexpr int kSlots = 16;
// Of each way; the first ones fill the slots.
constexpr int kPieces = 96;
constexpr int kDropped = 2 * kSlots;
// Between what was measured where they share a cache (0.6 to 3.6) and where
// they do not (6.8 to 17).
constexpr double kApart = 5;

// Median nanoseconds to write a piece.
double WriteNanos(void (*copy)(void*, const void*, size_t)) {
  std::vector<unsigned char> slots(kSlots * kPiece, 1);
  std::atomic<int> given{0};
  std::atomic<int> taken{0};
  std::thread reader([&] {
    probe_pin(1);
    std::vector<unsigned char> out(kPiece);
    for (int i = 0; i < kPieces; ++i) {
      while (given.load(std::memory_order_acquire) <= i) {
      }
      std::memcpy(out.data(), &slots[i % kSlots * kPiece], kPiece);
      taken.store(i + 1, std::memory_order_release);
    }
  });
  std::vector<double> nanos;
  std::thread writer([&] {
    probe_pin(0);
    const std::vector<unsigned char> in(kPiece, 2);
    for (int i = 0; i < kPieces; ++i) {
      while (i - taken.load(std::memory_order_acquire) >= kSlots) {
      }
      const auto start = probe_nanos();
      copy(&slots[i % kSlots * kPiece], in.data(), kPiece);
      if (i >= kDropped) {
        nanos.push_back(static_cast<double>(probe_nanos() - start));
      }
      given.store(i + 1, std::memory_order_release);
    }
  });
  writer.join();
  reader.join();
  std::nth_element(nanos.begin(), nanos.begin() + nanos.size() / 2,
                   nanos.end());
  return nanos[nanos.size() / 2];
}

}  // namespace

double SharedWriteRatio() {
#if defined(__x86_64__)
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
      CPU_COUNT(&allowed) < 2) {
    return 0;
  }
  const double past = WriteNanos(shm::StreamCopy);
  return WriteNanos(shm::CopyBytes) / past;
#else
  return 0;
#endif
}

bool AreApart(double ratio) { return ratio > kApart; }

void CoreDistance::WaitUntilNear() {
  const auto limit = std::chrono::steady_clock::now() + patience_;
  while (!always_apart_ && apart_()) {
    always_apart_ = std::chrono::steady_clock::now() >= limit;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool CoreDistance::HaveParted() {
  if (always_apart_ || !apart_()) {
    in_a_row_ = 0;
    return false;
  }
  if (in_a_row_ == kMostAgain) {
    in_a_row_ = 0;
    ++kept_;
    return false;
  }
  ++in_a_row_;
  ++parted_;
  return true;
}

}  // namespace lockstep
