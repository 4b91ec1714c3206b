// Prefetches decoded batches for the training loop.
//
// Its own threads read and decode the stripes of one rank, several steps ahead;
// Next returns them in the order of the cursor. Prefetched batches are a guess:
// on a new generation destroy the prefetcher and start another one at the
// committed cursor.
#ifndef LOCKSTEP_WORKER_DATA_PREFETCHER_H_
#define LOCKSTEP_WORKER_DATA_PREFETCHER_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/data/dataset.h"
#include "worker/data/shard_plan.h"

namespace lockstep::worker::data {

// One rank's part of a step.
struct Batch {
  std::vector<uint8_t> pixels;  // count images of the options' shape.
  std::vector<int32_t> labels;  // count of them.
  uint64_t count = 0;           // 0 is possible in the short last step.
  uint64_t global_count = 0;    // All ranks' samples: the divisor of gradients.
  DataCursor begin;             // The step's.
  DataCursor end;               // The cursor after this step.
};

struct PrefetcherOptions {
  uint64_t rank = 0;
  uint64_t world = 1;
  DataCursor start;
  // Ends before this epoch; an evaluation starts at epoch 0 and ends before 1.
  uint64_t end_epoch = std::numeric_limits<uint64_t>::max();
  // The shape of every image. A JPEG of another height or width is an error.
  ImageShape shape;
  uint32_t classes = 0;  // Labels are below it; 0: any label.
  size_t depth = 4;      // Steps ahead at most, 1 to 1024.
  size_t threads = 1;    // 1 to 256. One decodes raw images at 1 GB/s or so.
};

struct PrefetcherCounters {
  Duration waited{};     // The consumer's time inside Next.
  uint64_t steps = 0;    // Handed out.
  uint64_t samples = 0;  // Handed out.
  // Sums over all threads, including prefetched batches:
  uint64_t bytes = 0;    // Records read.
  uint64_t corrupt = 0;  // Records that could not be read or decoded.
  Duration reading{};    // With their checksums.
  Duration decoding{};
  // Current number of prefetched steps, at most options.depth.
  uint64_t queued = 0;
};

class Prefetcher {
 public:
  // InvalidArgument for options out of range, a start outside the plan, or
  // batches of more than 4 GiB. REQUIRES: the plan is made of
  // dataset->counts().
  static StatusOr<std::unique_ptr<Prefetcher>> Start(
      std::shared_ptr<const Dataset> dataset, ShardPlan plan,
      const PrefetcherOptions& options);

  // Waits for the reads under way: as long as the disk takes for one.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next step's batch. The memory of what `*batch` held is used again.
  //   OutOfRange        the end: options.end_epoch is reached
  //   DeadlineExceeded  nothing is ready yet; the next call may succeed
  //   Cancelled         Stop was called
  //   others            reading or decoding failed, with file and offset;
  //                     every later call returns the same
  // From one thread at a time.
  Status Next(Batch* batch, MonoTime deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends a Next that waits, and all later ones. From any thread.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // From any thread.
  PrefetcherCounters counters() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Step number s since the start lives in slot s % depth. A thread claims it,
  // produces it without the lock, and marks it ready; Next hands it out.
  struct Slot {
    bool ready = false;
    Batch batch;
    Status status;
  };
  struct Claim {
    uint64_t number = 0;
    DataStep step;
    Batch batch;  // Its memory is used.
  };

  Prefetcher(std::shared_ptr<const Dataset> dataset, ShardPlan plan,
             const PrefetcherOptions& options);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for a step to make; false: there is none any more.
  bool TakeClaim(Claim* claim) ABSL_LOCKS_EXCLUDED(mu_);
  // How long a batch took.
  struct Times {
    Duration reading{};
    Duration decoding{};
  };
  Status Fill(const DataStep& step, Batch* batch, std::string* buffer,
              Times* times);
  bool AtEnd() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const Dataset> dataset_;
  const ShardPlan plan_;
  const PrefetcherOptions options_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> bytes_read_ = 0;

  mutable Mutex mu_;
  CondVar slot_free_;   // For the threads.
  CondVar slot_ready_;  // For the consumer.
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);
  DataCursor claim_cursor_ ABSL_GUARDED_BY(mu_);
  uint64_t claimed_ ABSL_GUARDED_BY(mu_) = 0;   // Steps since the start.
  uint64_t consumed_ ABSL_GUARDED_BY(mu_) = 0;  // Never above claimed_.
  PrefetcherCounters counters_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // Written by Start only.
};

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_PREFETCHER_H_
