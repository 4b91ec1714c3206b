// What AsyncWriter's thread does.
#include <algorithm>
#include <utility>

#include "worker/checkpoint/async_writer_shared.h"
#include "worker/checkpoint/cleanup.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/writer.h"

namespace lockstep::worker::checkpoint {

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

// TakeOver created the directory. If it is missing, it was moved or is not
// mounted; a new one would hide the right one.
StatusOr<Vote> AsyncWriter::Shared::WritePart(const WriteRequest& write,
                                              const Snapshot& taken,
                                              WriteTimes* times) {
  if (!options.fs->Exists(options.root)) {
    return NotFound(
        "cannot write the checkpoint of step {}: the directory {} is missing; "
        "mount its file system",
        write.shard.attempt.step, options.root);
  }
  return WriteRank(
      options.fs, options.root, write, taken,
      [this] {
        return stop_transfer ? Cancelled("the checkpoint was abandoned")
                             : OkStatus();
      },
      times);
}

void AsyncWriter::Shared::Write() {
  WriteRequest write;
  Snapshot taken;
  {
    MutexLock lock(&mu);
    write.shard = {options.job, attempt(), options.rank, options.world_size};
    write.cursor = flight.request.cursor;
    write.state_hash = flight.request.state_hash;
    taken = std::move(flight.snapshot);
  }
  WriteTimes times;
  const StatusOr<Vote> vote = WritePart(write, taken, &times);
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
    event.write = times.write;
    event.sync = times.sync;
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
  const Status noted = NoteReadBack(options.fs, options.root, key);
  // Also where there was no room for the note: it makes room.
  LOCKSTEP_RETURN_IF_ERROR(ApplyRetention(options.fs, options.root, options.job,
                                          options.generation, options.lineage,
                                          verified, options.retention)
                               .status());
  return noted;
}

std::vector<Vote> AsyncWriter::Shared::AwaitVotes(const AttemptKey& key) {
  Duration pause = std::chrono::milliseconds(10);
  for (;;) {
    std::vector<Vote> found =
        CollectVotes(options.fs, options.root, key, options.world_size);
    MutexLock lock(&mu);
    CheckDeadline();
    if (found.size() == options.world_size || phase != kPublishing) {
      return found;
    }
    changed.WaitFor(&mu, pause);
    pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(500));
  }
}

void AsyncWriter::Shared::PublishNow() {
  PublishRequest publish;
  {
    MutexLock lock(&mu);
    publish.attempt = attempt();
    publish.metadata = flight.request.metadata;
  }
  publish.job = options.job;
  publish.world_size = options.world_size;
  publish.lineage = options.lineage;
  publish.metadata.insert(options.metadata.begin(), options.metadata.end());
  publish.written = FormatWallTime(options.clock->Now().wall);
  const std::vector<Vote> votes = AwaitVotes(publish.attempt);
  const MonoTime began = MonotonicNow();
  const StatusOr<std::string> path =
      checkpoint::Publish(options.fs, options.root, publish, votes, [this] {
        return stop_transfer ? Cancelled("the checkpoint was abandoned")
                             : OkStatus();
      });
  Event event;
  event.kind = path.ok() ? AsyncWriter::kPublished : AsyncWriter::kFailed;
  event.status = path.status();
  event.commit = MonotonicNow() - began;
  if (path.ok()) {
    event.path = *path;
    for (const Vote& vote : votes) event.bytes += vote.shard.size;
    event.warning = ReadBackAndRetain(
        *path, {publish.attempt.generation, publish.attempt.step});
  }
  MutexLock lock(&mu);
  if (phase == kPublishing) {
    phase = kIdle;
    Push(std::move(event));
  } else if (path.ok()) {
    // The checkpoint was abandoned after its publication, so report it.
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

}  // namespace lockstep::worker::checkpoint
