// What is left of an all-reduce in one host without an engine: processes that
// share their buffers and take the next piece by one counter. No operation is
// described or checked, nothing is allocated, no rank can fail or be aborted.
//
//   bare_reduce --store DIR and what peers/probe.h says
//
// A variant is the way in which a rank waits for the others: 0 by yielding its
// processor, 1 asleep until it is woken, 2 by naps.
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <string>

#include "tests/bench/peers/probe.h"
#include "worker/collective/reduce.h"

namespace lockstep {
namespace {

using worker::collective::BestInstructionSet;
using worker::collective::DataType;
using worker::collective::ReduceOp;

using Word = std::atomic<uint32_t>;

constexpr size_t kHead = 2 << 20;
constexpr uint32_t kRing = 64;
constexpr size_t kPieceFloats = (256 << 10) / sizeof(float);
constexpr timespec kNap = {.tv_sec = 0, .tv_nsec = 50'000};

enum Waiting { kYielding, kAsleep, kNapping };

// At the start of the mapping; the ranks' buffers follow. All only grow, but
// `taken`, of which operation i has the i-th, by turns.
struct Head {
  alignas(64) Word arrived;
  alignas(64) Word completed;  // pieces
  alignas(64) Word taken[kRing];
};
static_assert(sizeof(Head) <= kHead);

class Bare {
 public:
  Bare(unsigned char* memory, size_t bytes, int rank, int ranks)
      : head_(reinterpret_cast<Head*>(memory)), rank_(rank), ranks_(ranks) {
    for (int i = 0; i < ranks; ++i) {
      buffers_[i] = reinterpret_cast<float*>(memory + kHead + i * bytes);
    }
  }

  float* own() const { return buffers_[rank_]; }

  void Reduce(const probe_case& c) {
    const uint32_t number = number_++;
    // All ranks are through with it, and none has come to its next turn.
    if (rank_ == 0) head_->taken[(number + kRing / 2) % kRing] = 0;
    Meet(&head_->arrived, 1, arrived_ += ranks_, c.variant);
    const auto pieces =
        static_cast<uint32_t>((c.count + kPieceFloats - 1) / kPieceFloats);
    const uint32_t did = TakePieces(&head_->taken[number % kRing], pieces, c);
    Meet(&head_->completed, did, completed_ += pieces, c.variant);
  }

 private:
  uint32_t TakePieces(Word* taken, uint32_t pieces, const probe_case& c) {
    const auto reduce = ReduceAllFunctionFor(DataType::kFloat32, ReduceOp::kSum,
                                             BestInstructionSet());
    void* places[PROBE_RANKS];
    uint32_t did = 0;
    for (uint32_t i = 0; (i = taken->fetch_add(1)) < pieces; ++did) {
      const size_t begin = i * kPieceFloats;
      for (int r = 0; r < ranks_; ++r) places[r] = buffers_[r] + begin;
      reduce(places, ranks_, places, ranks_,
             std::min(kPieceFloats, c.count - begin));
    }
    return did;
  }

  // Adds to the word, and waits until all have.
  static void Meet(Word* word, uint32_t add, uint32_t target, int waiting) {
    if (word->fetch_add(add) + add == target && waiting == kAsleep) {
      syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    for (uint32_t seen; static_cast<int32_t>((seen = *word) - target) < 0;) {
      if (waiting == kYielding) {
        sched_yield();
      } else if (waiting == kAsleep) {
        syscall(SYS_futex, word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
      } else {
        nanosleep(&kNap, nullptr);
      }
    }
  }

  Head* const head_;
  const int rank_;
  const int ranks_;
  float* buffers_[PROBE_RANKS] = {};
  uint32_t number_ = 0;
  uint32_t arrived_ = 0;
  uint32_t completed_ = 0;
};

const float* ReduceOne(void* self, const probe_case* c) {
  auto* const bare = static_cast<Bare*>(self);
  bare->Reduce(*c);
  return bare->own();
}

// Memory that is gone with the processes: rank 0 makes it, the others find it
// by `path`. Zeroed; null with errno. The probe's watchdog ends who waits.
unsigned char* MapShared(const std::string& path, int rank, size_t bytes) {
  int fd = -1;
  if (rank == 0) {
    fd = memfd_create("bare_reduce", MFD_CLOEXEC);
    const std::string own = fmt::format("/proc/{}/fd/{}", getpid(), fd);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
        symlink(own.c_str(), path.c_str()) != 0) {
      return nullptr;
    }
  } else {
    while ((fd = open(path.c_str(), O_RDWR | O_CLOEXEC)) < 0) {
      if (errno != ENOENT) return nullptr;
      sched_yield();
    }
  }
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<unsigned char*>(memory);
}

int Main(int argc, char** argv) {
  probe p;
  const int code = probe_begin(&p, argc, argv);
  if (code != 0) return code;
  const size_t bytes =
      (probe_largest(&p) * sizeof(float) + kHead - 1) / kHead * kHead;
  const size_t all = kHead + p.ranks * bytes;
  const std::string path =
      fmt::format("{}/bare", probe_argument(argc, argv, "--store", "."));
  unsigned char* const memory = MapShared(path, p.rank, all);
  if (memory == nullptr) {
    perror(path.c_str());
    return 1;
  }
  madvise(memory, all, MADV_HUGEPAGE);
  Bare bare(memory, bytes, p.rank, p.ranks);
  return probe_run(&p, bare.own(), ReduceOne, &bare);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
