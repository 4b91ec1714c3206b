#include "worker/checkpoint/async_writer.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <set>
#include <utility>

#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "worker/checkpoint/cleanup.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/writer.h"

namespace lockstep::checkpoint {

// All state, and the thread's work. The phases:
//
//   kIdle -Begin-> kWriting -vote, chief-> kVoted -Publish-> kPublishing
//     ^               |  \-vote, other-> kIdle                  |
//     |               |                                         | done
//     +---- done -----+-----------------------------------------+
//   any but kIdle -Abandon or deadline-> kGivingUp -cleaned up-> kIdle
struct AsyncWriter::Shared {
  enum Phase { kIdle, kWriting, kVoted, kPublishing, kGivingUp };

  explicit Shared(Options o) : options(std::move(o)) {
    if (options.restored) verified.insert(*options.restored);
  }

  bool is_chief() const { return options.rank == 0; }
  AttemptKey attempt() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return {options.generation, request.step, request.id};
  }

  void Run();
  void Write();
  void PublishNow();
  void CleanUp();
  void GiveUp(const Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void CheckDeadline() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Push(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  std::optional<Event> Pop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Status ReadBackAndRetain(const std::string& path, const CheckpointKey& key);

  const Options options;
  // The thread's alone.
  std::set<CheckpointKey> verified;
  // Asked by the thread between blocks, without the lock.
  std::atomic<bool> stop_transfer{false};

  mutable Mutex mu;
  CondVar changed;
  Phase phase ABSL_GUARDED_BY(mu) = kIdle;
  // The thread has something to do in this phase.
  bool work ABSL_GUARDED_BY(mu) = false;
  bool ending ABSL_GUARDED_BY(mu) = false;
  bool ended ABSL_GUARDED_BY(mu) = false;
  Request request ABSL_GUARDED_BY(mu);
  MonoTime begun ABSL_GUARDED_BY(mu);
  Snapshot snapshot ABSL_GUARDED_BY(mu);
  Snapshot spare ABSL_GUARDED_BY(mu);
  // Nothing: take them from the directory.
  std::optional<std::vector<Vote>> votes ABSL_GUARDED_BY(mu);
  std::deque<Event> events ABSL_GUARDED_BY(mu);
  Counters counters ABSL_GUARDED_BY(mu);
};

void AsyncWriter::Shared::Push(Event event) {
  event.step = request.step;
  event.elapsed = options.clock->Now().mono - begun;
  if (event.kind == AsyncWriter::kVoted) {
    ++counters.voted;
    counters.bytes_written += event.bytes;
  }
  if (event.kind == AsyncWriter::kPublished) ++counters.published;
  if (event.kind == AsyncWriter::kFailed) ++counters.failed;
  events.push_back(std::move(event));
  changed.NotifyAll();
}

void AsyncWriter::Shared::GiveUp(const Status& why) {
  if (phase == kIdle || phase == kGivingUp) return;
  stop_transfer = true;
  // A running thread cleans up when it notices; a waiting one now.
  phase = kGivingUp;
  work = true;
  Event event;
  event.kind = AsyncWriter::kFailed;
  event.status = Annotate(
      why, fmt::format("checkpoint of step {} given up", request.step));
  Push(std::move(event));
}

void AsyncWriter::Shared::CheckDeadline() {
  if (phase == kIdle || phase == kGivingUp) return;
  if (options.clock->Now().mono - begun < options.deadline) return;
  GiveUp(DeadlineExceeded("not {} within {}",
                          phase == kWriting ? "written" : "published",
                          FormatDuration(options.deadline)));
}

std::optional<AsyncWriter::Event> AsyncWriter::Shared::Pop() {
  CheckDeadline();
  if (events.empty()) return std::nullopt;
  Event event = std::move(events.front());
  events.pop_front();
  return event;
}

void AsyncWriter::Shared::Run() {
  for (;;) {
    Phase now;
    {
      MutexLock lock(&mu);
      while (!work && !ending) changed.Wait(&mu);
      if (!work && ending) {
        ended = true;
        changed.NotifyAll();
        return;
      }
      work = false;
      now = phase;
    }
    if (now == kWriting) Write();
    if (now == kPublishing) PublishNow();
    if (now == kGivingUp) CleanUp();
  }
}

void AsyncWriter::Shared::Write() {
  WriteRequest write;
  Snapshot taken;
  {
    MutexLock lock(&mu);
    write.shard = {options.job, attempt(), options.rank, options.world_size};
    write.cursor = request.cursor;
    write.state_hash = request.state_hash;
    taken = std::move(snapshot);
  }
  const StatusOr<Vote> vote =
      WriteRank(options.fs, options.root, write, taken, [this] {
        return stop_transfer ? Cancelled("it was given up") : OkStatus();
      });
  taken.Clear();
  MutexLock lock(&mu);
  spare = std::move(taken);
  if (phase != kWriting) return;  // Given up meanwhile: CleanUp comes next.
  Event event;
  if (vote.ok()) {
    phase = is_chief() ? kVoted : kIdle;
    event.kind = AsyncWriter::kVoted;
    event.vote = *vote;
    event.bytes = vote->shard.size;
  } else {
    // The others' parts are of no use without the chief.
    phase = is_chief() ? kGivingUp : kIdle;
    work = is_chief();
    event.kind = AsyncWriter::kFailed;
    event.status = vote.status();
  }
  Push(std::move(event));
}

// A checkpoint counts for retention only once it was read back.
Status AsyncWriter::Shared::ReadBackAndRetain(const std::string& path,
                                              const CheckpointKey& key) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                            Checkpoint::Open(options.fs, path));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Verify());
  verified.insert(key);
  return ApplyRetention(options.fs, options.root, options.job,
                        options.generation, options.lineage, verified,
                        options.retention)
      .status();
}

void AsyncWriter::Shared::PublishNow() {
  PublishRequest publish;
  std::optional<std::vector<Vote>> given;
  {
    MutexLock lock(&mu);
    publish.attempt = attempt();
    given = std::exchange(votes, std::nullopt);
  }
  publish.job = options.job;
  publish.world_size = options.world_size;
  publish.lineage = options.lineage;
  publish.metadata = options.metadata;
  publish.written = FormatWallTime(options.clock->Now().wall);
  if (!given) {
    given = CollectVotes(options.fs, options.root, publish.attempt,
                         options.world_size);
  }
  const StatusOr<std::string> path =
      checkpoint::Publish(options.fs, options.root, publish, *given, [this] {
        return stop_transfer ? Cancelled("it was given up") : OkStatus();
      });
  Event event;
  event.kind = path.ok() ? AsyncWriter::kPublished : AsyncWriter::kFailed;
  event.status = path.status();
  if (path.ok()) {
    event.path = *path;
    for (const Vote& vote : *given) event.bytes += vote.shard.size;
    event.warning = ReadBackAndRetain(
        *path, {publish.attempt.generation, publish.attempt.step});
  }
  MutexLock lock(&mu);
  if (phase == kPublishing) {
    phase = kIdle;
    Push(std::move(event));
  } else if (path.ok()) {
    // Given up a moment too late: it is there, so it is told.
    Push(std::move(event));
  }
}

void AsyncWriter::Shared::CleanUp() {
  AttemptKey key;
  {
    MutexLock lock(&mu);
    key = attempt();
  }
  if (is_chief()) {
    // What cannot be removed now is swept by the next generation.
    Discard(options.fs, options.root, key).IgnoreError();
  } else {
    DiscardRank(options.fs, options.root, key, options.rank).IgnoreError();
  }
  MutexLock lock(&mu);
  phase = kIdle;
  changed.NotifyAll();
}

AsyncWriter::AsyncWriter(Options options)
    : shared_(std::make_shared<Shared>(std::move(options))) {
  thread_ = std::thread([shared = shared_] { shared->Run(); });
}

AsyncWriter::~AsyncWriter() {
  bool ended = false;
  {
    MutexLock lock(&shared_->mu);
    shared_->ending = true;
    shared_->GiveUp(Cancelled("the rank ends"));
    shared_->changed.NotifyAll();
    const MonoTime deadline =
        SystemClock().Now().mono + shared_->options.shutdown_grace;
    while (!shared_->ended) {
      if (!shared_->changed.WaitUntil(&shared_->mu, deadline)) break;
    }
    ended = shared_->ended;
  }
  if (ended) {
    thread_.join();
  } else {
    LOG_WARN("job {} g{} rank {}: a write to {} hangs and is left behind",
             shared_->options.job, shared_->options.generation,
             shared_->options.rank, shared_->options.root);
    thread_.detach();
  }
}

Snapshot AsyncWriter::NewSnapshot() {
  MutexLock lock(&shared_->mu);
  return std::exchange(shared_->spare, Snapshot());
}

Status AsyncWriter::Begin(const Request& request, Snapshot snapshot) {
  MutexLock lock(&shared_->mu);
  shared_->CheckDeadline();
  if (shared_->phase != Shared::kIdle) {
    return WithReason(
        Unavailable("checkpoint of step {} not begun: the one of step {} is "
                    "still in flight",
                    request.step, shared_->request.step),
        "CHECKPOINT_IN_FLIGHT");
  }
  shared_->request = request;
  shared_->snapshot = std::move(snapshot);
  shared_->begun = shared_->options.clock->Now().mono;
  shared_->stop_transfer = false;
  shared_->phase = Shared::kWriting;
  shared_->work = true;
  ++shared_->counters.begun;
  shared_->changed.NotifyAll();
  return OkStatus();
}

Status AsyncWriter::PublishFromDisk() { return StartPublish(std::nullopt); }

Status AsyncWriter::Publish(std::vector<Vote> votes) {
  return StartPublish(std::move(votes));
}

Status AsyncWriter::StartPublish(std::optional<std::vector<Vote>> votes) {
  MutexLock lock(&shared_->mu);
  shared_->CheckDeadline();
  if (shared_->phase != Shared::kVoted) {
    return FailedPrecondition(
        "nothing to publish: rank {} has no checkpoint that it voted for and "
        "that is not settled",
        shared_->options.rank);
  }
  shared_->votes = std::move(votes);
  shared_->phase = Shared::kPublishing;
  shared_->work = true;
  shared_->changed.NotifyAll();
  return OkStatus();
}

void AsyncWriter::Abandon(const Status& why) {
  MutexLock lock(&shared_->mu);
  shared_->GiveUp(why);
}

std::optional<AsyncWriter::Event> AsyncWriter::Poll() {
  MutexLock lock(&shared_->mu);
  return shared_->Pop();
}

std::optional<AsyncWriter::Event> AsyncWriter::Wait(Duration timeout) {
  const MonoTime until = SystemClock().Now().mono + timeout;
  MutexLock lock(&shared_->mu);
  for (;;) {
    if (auto event = shared_->Pop()) return event;
    // Nothing under way will make an event: don't wait for one.
    if (shared_->phase == Shared::kIdle) return std::nullopt;
    // In short turns, because the deadline follows the injected clock.
    const MonoTime now = SystemClock().Now().mono;
    if (now >= until) return std::nullopt;
    shared_->changed.WaitUntil(
        &shared_->mu, std::min(until, now + std::chrono::milliseconds(50)));
  }
}

bool AsyncWriter::in_flight() const {
  MutexLock lock(&shared_->mu);
  return shared_->phase != Shared::kIdle;
}

AsyncWriter::Counters AsyncWriter::counters() const {
  MutexLock lock(&shared_->mu);
  return shared_->counters;
}

}  // namespace lockstep::checkpoint
