// The tcp backend, for tuning: medians of all-reduce by size.
//
//   tcp_probe [--ranks N] [--sizes BYTES,...] [--plan "tcp ranks=..."]...
//             [--seconds S]
//
// One process per rank on the loopback. All sides run by turns, on buffers
// that are filled anew before each operation (1 KiB in batches of 100). A
// sample is the time from the first rank's start to the last rank's end.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "worker/collective/communicator.h"
#include "worker/collective/tcp/tcp_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep {
namespace {

constexpr int kMaxRanks = 16;
constexpr int kMaxSamples = 4000;
constexpr int kMaxSides = 12;

struct Settings {
  int ranks = 2;
  std::vector<size_t> sizes = {1 << 10,  8 << 10,   16 << 10, 32 << 10,
                               64 << 10, 256 << 10, 1 << 20,  4 << 20,
                               25 << 20, 100 << 20};
  std::vector<std::string> plans;
  double seconds = 1;  // per size and side, roughly
};

struct Board {
  pthread_barrier_t everyone;
  std::atomic<int> arrived{0};
  std::atomic<int> wrong{0};
  int64_t start[kMaxSides][kMaxSamples][kMaxRanks];
  int64_t end[kMaxSides][kMaxSamples][kMaxRanks];
};

void Meet(Board* board, int ranks, int* passed) {
  pthread_barrier_wait(&board->everyone);
  const int target = ++*passed * ranks;
  board->arrived.fetch_add(1);
  while (board->arrived.load() < target) {
  }
}

struct Side {
  std::string name;
  std::unique_ptr<Communicator> communicator;
  const Buffer* buffer = nullptr;
};

StatusOr<std::vector<Side>> FormSides(const Settings& settings, int rank,
                                      const std::string& dir) {
  std::vector<Side> sides;
  const size_t most =
      *std::max_element(settings.sizes.begin(), settings.sizes.end());
  const size_t count = settings.plans.size() + 1;
  for (size_t i = 0; i < count; ++i) {
    DirectoryRendezvousStore store(fmt::format("{}/{}", dir, i));
    CommunicatorOptions options = TestOptions(rank, settings.ranks, &store);
    options.key = "probe";
    Side side;
    if (i == 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(side.communicator, FormTcp(options));
      side.name = "tcp";
    } else {
      options.reduction_plan = settings.plans[i - 1];
      LOCKSTEP_ASSIGN_OR_RETURN(side.communicator, FormTcp(options));
      side.name = options.reduction_plan;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(side.buffer, side.communicator->Allocate(most));
    sides.push_back(std::move(side));
  }
  return sides;
}

int SamplesOf(size_t bytes, double seconds) {
  const double guess = 10e-6 + static_cast<double>(bytes) / 2e9;
  return static_cast<int>(std::clamp(seconds / guess, 5.0, 400.0));
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

Status RunRank(const Settings& settings, int rank, const std::string& dir,
               Board* board) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Side> sides,
                            FormSides(settings, rank, dir));
  if (rank == 0) fmt::print("{}\n", sides[0].communicator->Plan());
  int passed = 0;
  for (const size_t bytes : settings.sizes) {
    const size_t count = bytes / 4;
    const int batch = bytes <= 1024 ? 100 : 1;
    const int samples = SamplesOf(bytes, settings.seconds);
    for (int i = -3; i < samples; ++i) {
      for (size_t s = 0; s < sides.size(); ++s) {
        auto* const data = static_cast<float*>(sides[s].buffer->data);
        std::fill(data, data + count, 1.0f);
        Meet(board, settings.ranks, &passed);
        const int64_t start = MonotonicNanos();
        for (int k = 0; k < batch; ++k) {
          LOCKSTEP_RETURN_IF_ERROR(
              Run(sides[s].communicator.get(),
                  {.slice = {sides[s].buffer, 0, count, DataType::kFloat32},
                   .op = batch == 1 ? ReduceOp::kSum : ReduceOp::kMax},
                  std::chrono::seconds(30)));
        }
        const int64_t end = MonotonicNanos();
        const float expected = batch == 1 ? settings.ranks : 1;
        if (data[0] != expected || data[count - 1] != expected) {
          board->wrong = 1;
        }
        if (i < 0) continue;
        board->start[s][i][rank] = start;
        board->end[s][i][rank] = end;
      }
    }
    pthread_barrier_wait(&board->everyone);
    if (rank == 0) {
      fmt::print("{:>10} B", bytes);
      for (size_t s = 0; s < sides.size(); ++s) {
        std::vector<double> times;
        for (int i = 0; i < samples; ++i) {
          const int64_t* ends = board->end[s][i];
          const int64_t* starts = board->start[s][i];
          times.push_back((*std::max_element(ends, ends + settings.ranks) -
                           *std::min_element(starts, starts + settings.ranks)) *
                          1e-3 / batch);
        }
        fmt::print("  {} {:.1f} us", sides[s].name, Median(times));
      }
      fmt::print("\n");
      fflush(stdout);
    }
    pthread_barrier_wait(&board->everyone);
  }
  return OkStatus();
}

int Main(const Settings& settings) {
  char name[] = "/tmp/lockstep-tcp-probe-XXXXXX";
  if (mkdtemp(name) == nullptr) return 1;
  const std::string dir = name;
  for (int i = 0; i < kMaxSides; ++i) {
    std::filesystem::create_directory(fmt::format("{}/{}", dir, i));
  }
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Board* const board = new (memory) Board;
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&board->everyone, &shared, settings.ranks);
  int failed = 0;
  {
    RankProcesses ranks(settings.ranks, [&](int rank) {
      signal(SIGPIPE, SIG_IGN);
      const Status status = RunRank(settings, rank, dir, board);
      fflush(stdout);
      if (status.ok()) return 0;
      fmt::print(stderr, "rank {}: {}\n", rank, Message(status));
      return 1;
    });
    const MonoTime deadline = MonotonicNow() + std::chrono::seconds(95);
    for (int rank = 0; rank < settings.ranks; ++rank) {
      failed |= ranks.Join(rank, deadline);
    }
  }
  if (board->wrong != 0) fmt::print("WRONG SUMS\n");
  std::filesystem::remove_all(dir);
  return failed != 0 || board->wrong != 0 ? 1 : 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    ++i;
    if (option == "--ranks") {
      settings.ranks = std::clamp(std::atoi(value), 2, lockstep::kMaxRanks);
    } else if (option == "--seconds") {
      settings.seconds = std::atof(value);
    } else if (option == "--sizes") {
      settings.sizes.clear();
      std::istringstream in(value);
      for (std::string size; std::getline(in, size, ',');) {
        settings.sizes.push_back(std::strtoull(size.c_str(), nullptr, 10));
      }
    } else if (option == "--plan") {
      settings.plans.push_back(value);
    } else {
      fmt::print(stderr,
                 "usage: tcp_probe [--ranks N] [--sizes BYTES,...] [--seconds "
                 "S] [--plan \"tcp ranks=...\"]...\n");
      return 2;
    }
  }
  if (settings.plans.size() + 1 > lockstep::kMaxSides) return 2;
  return lockstep::Main(settings);
}
