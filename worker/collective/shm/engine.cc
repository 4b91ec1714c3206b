#include "worker/collective/shm/engine.h"

#include <algorithm>
#include <cstring>

#include "worker/collective/operation.h"

namespace lockstep::shm {
Engine::Engine(const CommunicatorOptions& options, const Group* group,
               FailureDetector* detector)
    : label_(options.label),
      timeout_(options.operation_timeout),
      me_(options.rank),
      size_(options.size),
      group_(*group),
      detector_(*detector),
      instructions_(BestInstructionSet()),
      spins_(group->processors >= options.size),
      stage_(Blocks::ShapeOf(size_, kStageBytes, spins_)),
      peers_(size_),
      mapped_(size_),
      ins_(size_),
      outs_(size_) {}

StatusOr<uint64_t> Engine::Start(const Operation& operation,
                                 const Placement& placement) {
  if (detector_.broken()) return detector_.status();
  tasks_.emplace_back();
  Task& task = tasks_.back();
  task.operation = operation;
  task.placement = placement;
  task.started = Started::Of(operation);
  task.started.place = placement.place;
  size_t most = 0;
  if (operation.kind != CollectiveKind::kBarrier) {
    const bool in_parts = operation.kind == CollectiveKind::kAllGather;
    most = operation.slice.count / (in_parts ? size_ : 1) *
           SizeOf(operation.slice.type);
  }
  task.has_data = most > 0;
  task.small = most <= kSmallBytes;
  if (placement.is_private) task.started.words.what |= Started::kPrivate;
  const uint64_t number = finished_ + tasks_.size() - 1;
  NoteProcessor();
  Progress();
  return number;
}

bool Engine::Poll(uint64_t number) {
  if (number >= finished_) Progress();
  return number < finished_ || detector_.broken();
}

Status Engine::Wait(uint64_t number, MonoTime deadline) {
  for (;;) {
    // Before the look: what was done before the end counts.
    const bool broken = detector_.broken();
    Progress();
    if (number < finished_) return OkStatus();
    if (broken) return detector_.status();
    if (Rest(deadline)) continue;
    detector_.Break(DeadlineExceeded(
        "{}: {} did not end before its deadline, waiting for {}", label_,
        lockstep::Describe(tasks_[number - finished_].operation),
        WhomWeWaitFor()));
  }
}

// What a peer had done before it ended counts: it may have left after an
// operation that only this rank has not looked at yet. Nothing new is begun.
void Engine::Progress() {
  const bool broken = detector_.broken();
  if (broken && !detector_.broken_by_peer()) return;
  while (!tasks_.empty()) {
    while (!broken && posted_ < finished_ + tasks_.size() && PostNext()) {
    }
    // Not even posted: need_ says why.
    if (posted_ == finished_) return;
    Task* const front = &tasks_.front();
    if (!Advance(front)) return;
    Finish(front);
  }
}

bool Engine::PostNext() {
  Task* const task = &tasks_[posted_ - finished_];
  if (posted_ >= kRing && !AllDone(posted_ - kRing)) return false;
  if (task->small && task->has_data) {
    task->slot = static_cast<uint32_t>(small_posted_ % kSmallSlots);
    const uint64_t used = slot_used_[task->slot];
    if (used > 0 && !AllDone(used - 1)) return false;
    slot_used_[task->slot] = posted_ + 1;
    ++small_posted_;
  }
  Post(task);
  ++posted_;
  return true;
}

// Whether nobody will look at operation `number` again.
bool Engine::AllDone(uint64_t number) {
  if (finished_ <= number) return false;
  if (least_done_ > number) return true;
  uint64_t least = UINT64_MAX;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == me_) continue;
    const uint64_t done = control(rank)->done.load(std::memory_order_acquire);
    least = std::min(least, done);
    if (done > number) continue;
    if (posted_ == finished_) {
      need_ = {Need::kDone, rank, number};
    }
    return false;
  }
  least_done_ = least;
  return true;
}

void Engine::Post(Task* task) {
  Control* const own = control(me_);
  if (task->small && task->has_data) {
    const Range range = ContributionOf(task->operation, me_, size_);
    const size_t element = SizeOf(task->operation.slice.type);
    std::memcpy(own->small[task->slot],
                task->placement.local + range.first * element,
                range.count * element);
  }
  Entry& mine = own->ring[posted_ % kRing];
  const Started& started = task->started;
  mine.what.store(started.words.what, std::memory_order_relaxed);
  mine.count.store(started.words.count, std::memory_order_relaxed);
  mine.part_of_what.store(started.part_of.what, std::memory_order_relaxed);
  mine.part_of_count.store(started.part_of.count, std::memory_order_relaxed);
  mine.place.store(started.place, std::memory_order_relaxed);
  if (!task->small) {
    mine.claimed.store(0, std::memory_order_relaxed);
    mine.completed.store(0, std::memory_order_relaxed);
    mine.works.store(0, std::memory_order_relaxed);
  }
  mine.sequence.store(posted_ + 1, std::memory_order_release);
  Kick(wait_code::Arrival(me_));
}

bool Engine::Advance(Task* task) {
  if (!Arrive(task)) return false;
  if (task->small) {
    RunSmall(*task);
    return true;
  }
  return task->streamed ? RunStreamed(task) : RunShared(task);
}

bool Engine::Arrive(Task* task) {
  if (task->arrived == size_) return true;
  for (; task->arrived < size_; ++task->arrived) {
    const int rank = task->arrived;
    if (rank == me_) {
      peers_[rank] = task->started;
      continue;
    }
    need_ = {Need::kArrival, rank, finished_};
    if (!Met(need_)) return false;
    // It came, and has given up since: then so do we, unless it was through
    // with this one before.
    if (detector_.HasBroken(rank) &&
        control(rank)->done.load(std::memory_order_acquire) <= finished_) {
      detector_.PeerDied(rank);
      return false;
    }
    const Entry& theirs = entry(rank);
    peers_[rank] = {{theirs.what.load(std::memory_order_relaxed),
                     theirs.count.load(std::memory_order_relaxed)},
                    {theirs.part_of_what.load(std::memory_order_relaxed),
                     theirs.part_of_count.load(std::memory_order_relaxed)},
                    theirs.place.load(std::memory_order_relaxed)};
    if (!Accept(task, rank)) return false;
  }
  if (task->small) return true;
  for (const Started& peer : peers_) {
    task->streamed = task->streamed || peer.is_private();
  }
  if (!task->streamed) {
    task->chunks = Chunks(task->operation, size_);
    return true;
  }
  task->blocks = Blocks(task->operation, size_, stage_);
  for (int rank = 0; rank < size_ && !stage_mapped_; ++rank) {
    (void)group_.members[rank].segment.Populate(kStagePlace, kStageBytes);
  }
  stage_mapped_ = true;
  return true;
}

// Checks what a peer has started.
bool Engine::Accept(Task* task, int rank) {
  const Started& theirs = peers_[rank];
  if (!theirs.SameAs(task->started)) {
    const bool first = me_ < rank;
    const std::string own = task->started.Describe();
    const std::string other = theirs.Describe();
    detector_.Break(FailedPrecondition(
        "{}: operation {} is not the same on all ranks: rank {} started {}, "
        "rank {} started {}",
        label_, finished_, std::min(me_, rank), first ? own : other,
        std::max(me_, rank), first ? other : own));
    return false;
  }
  if (task->small || theirs.is_private()) return true;
  const size_t bytes = BytesOf(task->operation);
  const Segment& segment = group_.members[rank].segment;
  if (!segment.HasRange(theirs.place, bytes,
                        SizeOf(task->operation.slice.type))) {
    detector_.Break(Internal("{}: rank {} named memory that it has not shared",
                             label_, rank));
    return false;
  }
  // Their pages are there; this maps them here, once.
  if (theirs.place + bytes > mapped_[rank]) {
    (void)segment.Populate(theirs.place, bytes);
    mapped_[rank] = theirs.place + bytes;
  }
  return true;
}

void Engine::Finish(Task* task) {
  streamed_ += task->blocks.count();
  rested_ = false;
  tasks_.pop_front();
  ++finished_;
  control(me_)->done.store(finished_, std::memory_order_release);
}

}  // namespace lockstep::shm
