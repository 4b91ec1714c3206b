// The status page of a rank: 4 KiB in a file that the rank maps and its worker
// daemon reads. Updates need no system call.
//
// 512 little-endian 64-bit words, written under a sequence lock: word 1 is odd
// during a write. docs/formats/task-files.md has the layout. The first cache
// line is progress; a versioned block of counters follows. Counters only grow,
// so a summary needs only the last reading. The last two words are outside of
// the lock, because another thread writes them.
//
// The rank is a user's program: the reader treats every byte as untrusted until
// it is checked, and neither crashes nor waits.
#ifndef LOCKSTEP_WORKER_TASK_RANK_PAGE_H_
#define LOCKSTEP_WORKER_TASK_RANK_PAGE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::worker::task {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kPageWords = kPageBytes / 8;
inline constexpr size_t kMaxReportedValues = 16;
inline constexpr size_t kReportedNameBytes = 32;  // With a final NUL.

// Activity of a rank. The first kTimedPhases are exclusive: each moment of a
// rank counts for exactly one of them.
enum class RankPhase : uint32_t {
  kInput = 0,          // Waiting for samples.
  kCompute = 1,        // Forward and backward.
  kAllReduce = 2,      // Waiting for a reduction that all have joined.
  kStragglerWait = 3,  // Waiting for the last rank to join one.
  kOptimizer = 4,
  kCheckpoint = 5,  // Stalled by a checkpoint.
  kEvaluation = 6,
  kOther = 7,
  kCompile = 8,  // Building kernels and graphs: torch.compile, XLA.
  // Shown as phases, but their time counts as kOther:
  kForming = 9,
  kFinished = 10,
};
inline constexpr size_t kTimedPhases = 9;
inline constexpr size_t kRankPhases = 11;

// "input", "compute", "allreduce", "straggler_wait", "optimizer",
// "checkpoint", "evaluation", "other", "compile", "forming", "finished".
const char* RankPhaseName(RankPhase phase);

// Phases of one rank's work on a checkpoint.
enum class CheckpointPhase : uint32_t {
  kSnapshot = 0,  // Copying the state; training stands still.
  kWrite = 1,
  kFsync = 2,
  kCommit = 3,   // Rank 0 alone: moves shards together, writes the manifest.
  kRestore = 4,  // Finding and loading one; on other ranks, waiting for rank 0.
};
inline constexpr size_t kCheckpointPhases = 5;

struct RankProgress {
  uint64_t generation = 0;
  uint64_t step = 0;            // The one being worked on.
  uint64_t collective = 0;      // Collectives started in this generation.
  int64_t last_committed = -1;  // -1: none yet.
  int64_t mono_nanos = 0;       // CLOCK_MONOTONIC when this was written.
  RankPhase phase = RankPhase::kOther;
  uint32_t rank = 0;
};

// Counters of the rank's input pipeline. All 0 without one.
struct InputCounters {
  uint64_t bytes = 0;  // Of records read, including prefetched ones.
  // Records that failed to be read or decoded.
  uint64_t corrupt_records = 0;
  // Current number of prefetched steps, and its limit.
  uint64_t queue_depth = 0;
  uint64_t queue_capacity = 0;
  // Total of all threads.
  double read_seconds = 0;
  double decode_seconds = 0;
};

// A rank that this one waited for.
struct LateRankReading {
  int32_t rank = -1;  // -1: none.
  uint64_t steps = 0;
  double waited_seconds = 0;

  bool operator==(const LateRankReading&) const = default;
};
inline constexpr size_t kLateRanks = 8;

// The rank that delayed its gang most in the newest steps.
struct StragglerReading {
  int32_t rank = -1;        // -1: not known.
  uint32_t steps = 0;       // That were looked at, at most 100.
  uint32_t late_steps = 0;  // Of them, those to which it came last.
  // Fraction of their time that the gang would have saved if this rank had
  // arrived with the last but one.
  double cost = 0;

  bool operator==(const StragglerReading&) const = default;
};

// Histogram of durations, of fixed size, because it lies in a rank's page;
// other code uses common/base/histogram.h.
inline constexpr std::array<double, 11> kTimeBounds = {
    0.001, 0.00316, 0.01, 0.0316, 0.1, 0.316, 1, 3.16, 10, 31.6, 100};
struct TimeHistogram {
  // Counts up to each bound and above the last; then the longer ones.
  std::array<uint64_t, kTimeBounds.size() + 1> counts{};
  double sum = 0;

  void Observe(double seconds);
  bool operator==(const TimeHistogram&) const = default;
};

// Waits for late ranks, and the throughput of reductions.
struct CommunicationReading {
  // In the last step: the rank that came last (-1: unknown), and this rank's
  // wait for it.
  int32_t late_rank = -1;
  double late_waited_seconds = 0;
  // The longest first; unused places at the end.
  std::array<LateRankReading, kLateRanks> longest_waits{};
  StragglerReading straggler;
  // In the newest steps: bytes reduced, times 2 (n - 1) / n, per second of busy
  // time.
  double bus_bytes_per_second = 0;

  bool operator==(const CommunicationReading&) const = default;
};

// Totals since the page was created. Only the lag, the depth and values of the
// newest steps can decrease.
struct RankCounters {
  int64_t start_mono_nanos = 0;  // When phase_seconds began to count.
  std::array<double, kTimedPhases> phase_seconds{};  // Add up to wall time.
  uint64_t samples = 0;
  uint64_t allreduce_bytes = 0;
  uint64_t collectives = 0;
  uint64_t steps_committed = 0;
  uint64_t steps_skipped = 0;  // For a NaN or infinity in a gradient.
  uint64_t checkpoints_saved = 0;
  int64_t last_checkpoint_step = -1;  // -1: none yet.
  uint64_t total_steps = 0;           // Planned; 0: not known.
  uint64_t global_batch = 0;          // Samples a step; 0: not known.
  uint64_t epoch = 0;
  bool has_loss = false;  // After reading, set values are finite.
  double last_loss = 0;
  bool has_learning_rate = false;
  double last_learning_rate = 0;
  // Time in which at least one bucket of gradients was being reduced; at least
  // the all-reduce phase. stepped_reducer.h defines the measurement.
  double allreduce_busy_seconds = 0;
  // Delay of this rank behind the median rank in the newest steps; negative:
  // ahead.
  double straggler_lag_seconds = 0;
  InputCounters input;
  uint64_t checkpoint_bytes = 0;  // Of this rank's durable parts.
  uint64_t checkpoint_failures = 0;
  std::array<double, kCheckpointPhases> checkpoint_seconds{};
  CommunicationReading communication;
  // Time between the ends of successive steps. The first of a generation, and
  // those around an evaluation or a checkpoint, include everything before them.
  TimeHistogram step_times;
  std::array<TimeHistogram, kCheckpointPhases> checkpoint_times{};
  // At most kMaxReportedValues; longer names are cut to 31 bytes.
  std::vector<std::pair<std::string, double>> values;
};

// The words of a second thread of the rank's process about the collective that
// the rank is in: once a second.
struct RankWait {
  // Counts what was said; 0: nothing yet. It stands still in a stopped process.
  uint64_t beat = 0;
  // Otherwise the communicator does not tell, or there is none.
  bool known = false;
  bool waiting = false;  // For a peer.
  int32_t peer = -1;     // -1: not known.
  // The lower 44 bits of the number of waits that it has begun.
  uint64_t waits = 0;

  bool operator==(const RankWait&) const = default;
};

struct RankPage {
  RankProgress progress;
  RankWait wait;
  // False if the block has another version; the progress is still valid.
  bool has_counters = false;
  RankCounters counters;
};

// Words 2-7, and words 8 onward, of a page.
using PageWords = std::array<uint64_t, kPageWords>;
void EncodeProgress(const RankProgress& progress, PageWords* words);
void EncodeCounters(const RankCounters& counters, PageWords* words);
// The word beside the beat.
uint64_t EncodeWait(const RankWait& wait);
// Validates every word. Replaces invalid values by absence or 0, and
// unprintable text by printable ASCII. Returns false if it is not a page.
bool DecodePage(const PageWords& words, RankPage* page, std::string* error);

// The rank's side. Not thread-safe: one thread writes at a time, but SetWait
// may run beside it, in one other thread.
class PageWriter {
 public:
  // Creates or truncates the file `path` and maps it. Returns nullptr and a
  // sentence on failure.
  static std::unique_ptr<PageWriter> Create(const std::string& path,
                                            uint32_t rank, std::string* error);
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  // About ten stores each, without system calls or allocations. The rank of
  // Create replaces progress.rank.
  void SetProgress(const RankProgress& progress);
  void SetCounters(const RankCounters& counters);
  // Counts the beat by itself.
  void SetWait(const RankWait& wait);

 private:
  PageWriter(std::atomic<uint64_t>* words, uint32_t rank)
      : words_(words), rank_(rank) {}
  void Store(size_t from, size_t to);

  std::atomic<uint64_t>* const words_;  // In the mapping.
  const uint32_t rank_;
  PageWords staged_{};
  uint64_t beat_ = 0;  // SetWait's.
};

// The daemon's side. Uses pread(2) instead of a mapping: a rank that truncates
// its file could otherwise kill the reader by SIGBUS. Not thread-safe.
class PageReader {
 public:
  enum class Result {
    kOk,
    kBusy,  // The writer was at work at each of a few tries: ask again later.
    kBad,   // Not a page; *error explains it.
  };

  // Returns nullptr and a sentence if the file does not exist or is not
  // regular.
  static std::unique_ptr<PageReader> Open(const std::string& path,
                                          std::string* error);
  ~PageReader();
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  // Reads a consistent snapshot of one SetProgress or SetCounters.
  Result Read(RankPage* page, std::string* error);
  // Reads the page of an ended rank, which may have ended during a write. Never
  // kBusy.
  Result ReadLast(RankPage* page, std::string* error);

 private:
  explicit PageReader(int fd) : fd_(fd) {}
  bool ReadAt(void* out, size_t bytes, size_t offset, std::string* error);

  const int fd_;
};

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_RANK_PAGE_H_
