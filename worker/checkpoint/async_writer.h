// Writes checkpoints while training goes on. The trainer copies its state
// (Snapshot), starts a write and looks in after each step; a thread does the
// rest. Errors never stop training: they come as events.
//
// A rank, where `link` is any means to send one bit or message:
//
//   AsyncWriter writer({.fs = RealFileSystem(), .clock = &clock, .root = root,
//                       .job = job, .generation = g, .rank = rank,
//                       .world_size = n, .lineage = lineage});
//   // after the optimizer applied step k, when a checkpoint is due at k:
//   Snapshot snapshot = writer.NewSnapshot();
//   if (rank == 0) RETURN_IF_ERROR(snapshot.Copy(tensors));
//   snapshot.AddBlob("rng", rng_bytes);
//   Status begun = writer.Begin({.step = k, .id = id, .cursor = cursor,
//                                .state_hash = StateHash(tensors)},
//                               std::move(snapshot));
//   // after every step, on every rank:
//   while (auto event = writer.Poll()) {
//     if (event->kind == AsyncWriter::kVoted) link.Voted(event->vote);
//     if (event->kind == AsyncWriter::kPublished) link.Report(event->path);
//     if (event->kind == AsyncWriter::kFailed) LOG_WARN("{}", event->status);
//   }
//   // and rank 0 on its own kVoted:
//   writer.PublishWhenAllVoted();
//
// One checkpoint is in flight at a time: on the chief (rank 0) from Begin to
// kPublished or kFailed, on others from Begin to kVoted or kFailed. Begin in
// that time is refused with Unavailable: the caller lets the newer one wait. A
// checkpoint that is not published within `deadline` of Begin, votes of others
// included, is given up: kFailed, staging directory removed.
//
// Thread-safe. Events come in order, each once.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_ASYNC_WRITER_H_
#define LOCKSTEP_WORKER_CHECKPOINT_ASYNC_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/snapshot.h"
#include "worker/checkpoint/vote.h"

namespace lockstep::worker::checkpoint {

class AsyncWriter {
 public:
  // Each member has an initializer, so that a designated list may omit any.
  struct Options {
    // Both must live as long as the process: a write that hangs in the kernel
    // cannot be waited for, and the thread goes on when it ends.
    FileSystem* fs = nullptr;
    const Clock* clock = nullptr;
    // Directory that TakeOver created; while it is missing, checkpoints fail.
    std::string root{};
    std::string job{};
    uint64_t generation = 0;
    uint32_t rank = 0;
    uint32_t world_size = 0;
    // With this generation's own entry. Goes into the manifest and decides
    // what retention may delete.
    std::vector<LineageEntry> lineage{};
    std::map<std::string, std::string> metadata{};  // Manifest::metadata.
    RetentionPolicy retention{};
    // The checkpoint that the job restored, which is whole: counts for
    // retention.
    std::optional<CheckpointKey> restored{};
    Duration deadline = std::chrono::minutes(10);
    // How long the destructor waits for a write to notice that it must end.
    Duration shutdown_grace = std::chrono::seconds(10);
  };

  struct Request {
    int64_t step = 0;
    uint64_t id = 0;
    Cursor cursor{};
    uint64_t state_hash = 0;
    // In addition to that of Options, which it overrides: facts that change in
    // a run.
    std::map<std::string, std::string> metadata{};
  };

  enum Kind {
    // This rank's part is durable: send `vote` to the chief. On the chief too.
    kVoted,
    // The chief's: complete at `path`.
    kPublished,
    // Abandoned; `status` has the reason. Training continues.
    kFailed,
  };

  struct Event {
    Kind kind = kFailed;
    int64_t step = 0;
    Vote vote;
    std::string path;
    Status status;
    uint64_t bytes = 0;  // kVoted: of the shard; kPublished: of all shards.
    Duration elapsed{};  // Since Begin.
    // kVoted: the time of writing and syncing this rank's part; kPublished: the
    // time of publishing once all votes were there.
    Duration write{};
    Duration sync{};
    Duration commit{};
    // kPublished: a harmless problem for the log, such as an old checkpoint
    // that could not be deleted. Usually OK.
    Status warning;
  };

  struct Counters {
    uint64_t begun = 0;
    uint64_t voted = 0;
    uint64_t published = 0;
    uint64_t failed = 0;
    uint64_t bytes_written = 0;
  };

  explicit AsyncWriter(Options options);
  // Gives up the checkpoint in flight. Waits at most `shutdown_grace`; a thread
  // that still hangs in a system call is left behind.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  // An empty snapshot with the memory of the last one written, so that its
  // copy does not wait for new pages.
  Snapshot NewSnapshot();

  // Unavailable while one is in flight, with the reason CHECKPOINT_IN_FLIGHT.
  Status Begin(const Request& request, Snapshot snapshot);

  // Call it on the chief, after its kVoted. Publishes once the votes of all
  // ranks are in the staging directory, so that they need no message.
  // FailedPrecondition: there is no checkpoint to publish.
  Status PublishWhenAllVoted();

  // Gives up the checkpoint in flight, e.g. because another rank's part failed.
  void Abandon(const Status& why);

  // The next event. Never waits, but notices that a deadline passed.
  std::optional<Event> Poll();
  // The same, waiting up to `timeout` of real time: at the end of a job, or
  // before a drain.
  std::optional<Event> Wait(Duration timeout);

  bool in_flight() const;
  Counters counters() const;

 private:
  struct Shared;

  // The thread may outlive the writer.
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_ASYNC_WRITER_H_
