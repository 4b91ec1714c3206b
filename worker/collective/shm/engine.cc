#include "worker/collective/shm/engine.h"

#include <algorithm>
#include <cstring>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::shm {

Engine::Engine(const CommunicatorOptions& options, const Group& group,
               FailureDetector* detector)
    : label_(options.label),
      detector_(*detector),
      ranks_(group, options.rank),
      waiter_(options, &ranks_, detector, group.processors >= options.size),
      shared_(&ranks_, detector, &waiter_),
      streamer_(&ranks_, detector, &waiter_, group.processors >= options.size),
      peers_(options.size),
      mapped_(options.size) {}

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
    most = operation.slice.count / (in_parts ? ranks_.size() : 1) *
           SizeOf(operation.slice.type);
  }
  task.has_data = most > 0;
  task.small =
      most <= kSmallBytes && operation.kind != CollectiveKind::kAllToAll;
  if (placement.is_private) task.started.words.what |= Started::kPrivate;
  const uint64_t number = ranks_.front() + tasks_.size() - 1;
  waiter_.NoteProcessor();
  Progress();
  return number;
}

bool Engine::Poll(uint64_t number) {
  if (number >= ranks_.front()) Progress();
  return number < ranks_.front() || detector_.broken();
}

Status Engine::Wait(uint64_t number, MonoTime deadline) {
  for (;;) {
    // Before the look: what was done before the end counts.
    const bool broken = detector_.broken();
    Progress();
    if (number < ranks_.front()) return OkStatus();
    if (broken) return detector_.status();
    if (waiter_.Wait(deadline)) continue;
    detector_.Break(DeadlineExceeded(
        "{}: {} did not end before its deadline, waiting for {}", label_,
        collective::Describe(tasks_[number - ranks_.front()].operation),
        waiter_.LateRanks()));
  }
}

// What a peer had done before it ended counts: it may have left after an
// operation that only this rank has not looked at yet. Nothing new is begun.
void Engine::Progress() {
  const bool broken = detector_.broken();
  if (broken && !detector_.broken_by_peer()) return;
  while (!tasks_.empty()) {
    while (!broken && posted_ < ranks_.front() + tasks_.size() && PostNext()) {
    }
    // Not even posted: the waiter knows why.
    if (posted_ == ranks_.front()) return;
    Task* const front = &tasks_.front();
    if (!Advance(front)) return;
    Finish(front);
  }
}

bool Engine::PostNext() {
  Task* const task = &tasks_[posted_ - ranks_.front()];
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
  if (ranks_.front() <= number) return false;
  if (least_done_ > number) return true;
  uint64_t least = UINT64_MAX;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    const uint64_t done =
        ranks_.control(rank)->done.load(std::memory_order_acquire);
    least = std::min(least, done);
    if (done > number) continue;
    if (posted_ == ranks_.front()) {
      waiter_.SetNeed({Need::kDone, rank, number});
    }
    return false;
  }
  least_done_ = least;
  return true;
}

void Engine::Post(Task* task) {
  Control* const own = ranks_.control(ranks_.rank());
  if (task->small && task->has_data) {
    const Range range =
        ContributionOf(task->operation, ranks_.rank(), ranks_.size());
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
  waiter_.Wake(wait_code::Arrival(ranks_.rank()));
}

bool Engine::Advance(Task* task) {
  if (!Arrive(task)) return false;
  if (task->small) {
    if (task->has_data) {
      shared_.RunSmall(task->operation, task->slot, task->placement.local);
    }
    return true;
  }
  return task->streamed ? streamer_.Run(task->operation, task->placement.local)
                        : shared_.Run(task->operation, peers_);
}

bool Engine::Arrive(Task* task) {
  if (task->arrived == ranks_.size()) return true;
  for (; task->arrived < ranks_.size(); ++task->arrived) {
    const int rank = task->arrived;
    if (rank == ranks_.rank()) {
      peers_[rank] = task->started;
      continue;
    }
    waiter_.SetNeed({Need::kArrival, rank, ranks_.front()});
    if (!waiter_.Met(waiter_.need())) return false;
    // It came, and has given up since: then so do we, unless it was through
    // with this one before.
    if (detector_.HasBroken(rank) &&
        ranks_.control(rank)->done.load(std::memory_order_acquire) <=
            ranks_.front()) {
      detector_.PeerDied(rank);
      return false;
    }
    const Entry& theirs = ranks_.entry(rank);
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
  if (task->streamed) {
    streamer_.Begin(task->operation);
  } else {
    shared_.Begin(task->operation);
  }
  return true;
}

// Checks what a peer has started.
bool Engine::Accept(Task* task, int rank) {
  const Started& theirs = peers_[rank];
  if (!theirs.SameAs(task->started)) {
    const bool first = ranks_.rank() < rank;
    const std::string own = task->started.Describe();
    const std::string other = theirs.Describe();
    detector_.Break(FailedPrecondition(
        "{}: operation {} is not the same on all ranks: rank {} started {}, "
        "rank {} started {}",
        label_, ranks_.front(), std::min(ranks_.rank(), rank),
        first ? own : other, std::max(ranks_.rank(), rank),
        first ? other : own));
    return false;
  }
  if (task->small || theirs.is_private()) return true;
  const size_t bytes = BytesOf(task->operation);
  const Segment& segment = ranks_.segment(rank);
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
  if (task->streamed) streamer_.End();
  waiter_.BeginOperation();
  tasks_.pop_front();
  ranks_.FinishFront();
}

}  // namespace lockstep::worker::collective::shm
