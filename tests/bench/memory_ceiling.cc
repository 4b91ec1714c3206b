#include "tests/bench/memory_ceiling.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/bench/peers/probe.h"

namespace lockstep {
namespace {

constexpr int kReadTurns = 7;

void Add(float* q, const float* p, size_t count) {
  for (size_t i = 0; i < count; ++i) q[i] += p[i];
}

}  // namespace

double AddBytesPerSecond(int threads, size_t bytes) {
  const size_t count = std::max<size_t>(1, bytes / sizeof(float));
  std::barrier together(threads);
  std::vector<std::vector<double>> starts(threads), ends(threads);
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      probe_pin(t);
      std::vector<float> q(count, 1);
      const std::vector<float> p(count, 1);
      for (int turn = 0; turn < kReadTurns; ++turn) {
        together.arrive_and_wait();
        starts[t].push_back(static_cast<double>(probe_nanos()));
        Add(q.data(), p.data(), count);
        ends[t].push_back(static_cast<double>(probe_nanos()));
      }
      // Not left out by who finds that nobody looks.
      if (q[count / 2] != 1 + kReadTurns) std::abort();
    });
  }
  for (std::thread& thread : running) thread.join();
  double best = 1e18;
  for (int turn = 0; turn < kReadTurns; ++turn) {
    double start = starts[0][turn];
    double end = ends[0][turn];
    for (int t = 1; t < threads; ++t) {
      start = std::min(start, starts[t][turn]);
      end = std::max(end, ends[t][turn]);
    }
    best = std::min(best, end - start);
  }
  return 3.0 * static_cast<double>(bytes) * threads / (best * 1e-9);
}

double InPlaceLimit(int ranks, size_t bytes) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = std::max(1, std::min(ranks, cores));
  // As much memory in all as the operation touches.
  const double rate =
      AddBytesPerSecond(threads, bytes * static_cast<size_t>(ranks) /
                                     (2 * static_cast<size_t>(threads)));
  return 2.0 * ranks * static_cast<double>(bytes) / rate;
}

}  // namespace lockstep
