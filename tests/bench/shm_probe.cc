// Times all-reduces of ranks on this host, as the facts were measured:
// every rank refills its buffer, all meet at a barrier, all reduce; a sample
// is the last end minus the first begin. Small ones go in batches of 100.
// Checks every result.
//
//   shm_probe [--ranks N] [--rounds N] [--private] [--free] BYTES...
//
// Rank r is pinned to processor r modulo those that there are, unless --free.
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/shm/shm_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep {
namespace {

constexpr int kMostRanks = 16;
constexpr int kMostRounds = 2000;
constexpr size_t kSmall = 16 << 10;
constexpr int kBatch = 100;

struct Board {
  std::atomic<int64_t> begin[kMostRounds][kMostRanks];
  std::atomic<int64_t> end[kMostRounds][kMostRanks];
};

struct Settings {
  int ranks = 2;
  int rounds = 0;  // 0: by size
  bool owned = true;
  bool pinned = true;
  std::vector<size_t> sizes;

  int RoundsOf(size_t bytes) const {
    if (rounds > 0) return std::min(rounds, kMostRounds);
    if (bytes <= kSmall) return 200;
    return bytes >= (size_t{16} << 20) ? 40 : 400;
  }
};

bool Reduce(Communicator* c, const Operation& operation) {
  const Status status = Run(c, operation, std::chrono::seconds(20));
  if (!status.ok()) std::fprintf(stderr, "%s\n", Message(status).c_str());
  return status.ok();
}

// One size on one rank.
bool Measure(const Settings& settings, Communicator* c, size_t bytes,
             Board* board) {
  const size_t count = bytes / sizeof(float);
  const Buffer* buffer = nullptr;
  std::unique_ptr<void, decltype(&free)> memory(nullptr, &free);
  if (settings.owned) {
    buffer = c->Allocate(bytes).value();
  } else {
    memory.reset(aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    buffer = c->Register(memory.get(), bytes).value();
  }
  float* const data = static_cast<float*>(buffer->data);
  const Operation operation{.slice = {buffer, 0, count, DataType::kFloat32}};
  const int batch = bytes <= kSmall ? kBatch : 1;
  for (int round = 0; round < settings.RoundsOf(bytes); ++round) {
    const float mine = batch > 1 ? 0.0f : static_cast<float>(c->rank() + 1);
    for (size_t i = 0; i < count; ++i)
      data[i] = mine + static_cast<float>(i & 7);
    if (batch > 1) std::fill(data, data + count, 0.0f);
    if (!Reduce(c, {.kind = CollectiveKind::kBarrier})) return false;
    board->begin[round][c->rank()] = MonotonicNanos();
    for (int i = 0; i < batch; ++i) {
      if (!Reduce(c, operation)) return false;
    }
    board->end[round][c->rank()] = MonotonicNanos();
    const int n = c->size();
    for (size_t i = 0; i < count; ++i) {
      const float expected =
          batch > 1 ? 0.0f
                    : static_cast<float>(n * (n + 1) / 2 +
                                         n * static_cast<int>(i & 7));
      if (data[i] == expected) continue;
      std::fprintf(stderr, "rank %d: element %zu is %g, not %g\n", c->rank(), i,
                   data[i], expected);
      return false;
    }
    if (!Reduce(c, {.kind = CollectiveKind::kBarrier})) return false;
  }
  return true;
}

void Report(const Settings& settings, size_t bytes, const Board& board) {
  const int rounds = settings.RoundsOf(bytes);
  std::vector<double> samples;
  for (int round = rounds / 10; round < rounds; ++round) {
    int64_t first = INT64_MAX;
    int64_t last = 0;
    for (int rank = 0; rank < settings.ranks; ++rank) {
      first = std::min<int64_t>(first, board.begin[round][rank]);
      last = std::max<int64_t>(last, board.end[round][rank]);
    }
    samples.push_back(static_cast<double>(last - first) * 1e-3 /
                      (bytes <= kSmall ? kBatch : 1));
  }
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double q) {
    return samples[static_cast<size_t>(q * (samples.size() - 1))];
  };
  std::printf("%10zu bytes  min %9.2f  median %9.2f  p90 %9.2f us\n", bytes,
              samples.front(), at(0.5), at(0.9));
  std::fflush(stdout);
}

int RankMain(const Settings& settings, int rank, const std::string& dir,
             Board* board) {
  signal(SIGPIPE, SIG_IGN);
  if (settings.pinned) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), &set);
    sched_setaffinity(0, sizeof(set), &set);
  }
  DirectoryRendezvousStore store(dir);
  auto c = FormShm(TestOptions(rank, settings.ranks, &store));
  if (!c.ok()) {
    std::fprintf(stderr, "%s\n", Message(c.status()).c_str());
    return 1;
  }
  if (rank == 0) std::printf("%s\n", (*c)->Plan().c_str());
  for (const size_t bytes : settings.sizes) {
    if (!Measure(settings, c->get(), bytes, board)) return 1;
    if (rank == 0) Report(settings, bytes, *board);
    if (!Reduce(c->get(), {.kind = CollectiveKind::kBarrier})) return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ranks" && i + 1 < argc) {
      settings.ranks = std::clamp(std::atoi(argv[++i]), 1, kMostRanks);
    } else if (word == "--rounds" && i + 1 < argc) {
      settings.rounds = std::atoi(argv[++i]);
    } else if (word == "--private") {
      settings.owned = false;
    } else if (word == "--free") {
      settings.pinned = false;
    } else {
      settings.sizes.push_back(std::strtoull(word.c_str(), nullptr, 10));
    }
  }
  if (settings.sizes.empty()) settings.sizes = {1 << 10, 1 << 20, 25 << 20};
  char dir[] = "/tmp/lockstep-shm-probe-XXXXXX";
  if (mkdtemp(dir) == nullptr) return 1;
  auto* const board =
      static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int code = 0;
  {
    RankProcesses ranks(settings.ranks, [&](int rank) {
      const int result = RankMain(settings, rank, dir, board);
      std::fflush(nullptr);
      return result;
    });
    for (int rank = 0; rank < settings.ranks; ++rank) {
      code |= ranks.Join(rank, MonotonicNow() + std::chrono::seconds(95));
    }
  }
  std::filesystem::remove_all(dir);
  return code == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
