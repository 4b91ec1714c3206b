// Operations on private memory, streamed through the stages; see layout.h.
#include <cstring>

#include "worker/collective/shm/engine.h"
#include "worker/collective/shm/stream_copy.h"

namespace lockstep::shm {
namespace {

bool Reduces(const Operation& operation) {
  return operation.kind == CollectiveKind::kAllReduce ||
         operation.kind == CollectiveKind::kReduceScatter;
}

// Whether others need the piece of `part` that `rank` has.
bool Gives(const Operation& operation, int rank, int part) {
  if (Reduces(operation)) return part != rank;
  if (operation.kind == CollectiveKind::kAllGather) return part == rank;
  return rank == operation.root;
}

// From whom `rank` gets its piece of `part` in the end; -1: it has it.
int SourceOf(const Operation& operation, int rank, int part) {
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllGather:
      return part == rank ? -1 : part;
    case CollectiveKind::kBroadcast:
      return rank == operation.root ? -1 : operation.root;
    default:
      return -1;
  }
}

}  // namespace

// Oldest blocks first; more are given while nothing else can be done.
bool Engine::RunStreamed(Task* task) {
  const uint64_t count = task->blocks.count();
  while (task->taken < count) {
    if (detector_.broken() && !detector_.broken_by_peer()) return false;
    if (task->taken < task->reduced && Take(task)) continue;
    // A step that cannot be done says in need_ what it waits for: the oldest
    // one's counts.
    const Need oldest = need_;
    const bool waits = task->taken < task->reduced;
    if (task->reduced < task->given && ReducePiece(task)) continue;
    const Need older = need_;
    const bool waits_too = task->reduced < task->given;
    if (task->given < count && Give(task)) continue;
    if (waits) {
      need_ = oldest;
    } else if (waits_too) {
      need_ = older;
    }
    return false;
  }
  return true;
}

unsigned char* Engine::Staged(int rank, uint64_t block, int part) const {
  const uint64_t slot = (streamed_ + block) % stage_.slots;
  return group_.members[rank].segment.data() + kStagePlace +
         (slot * size_ + part) * stage_.piece_bytes;
}

// Whether all ranks' counters are past `block` of the front, or need_ says
// whose is not.
bool Engine::AllHave(Need::Kind kind, uint64_t number) {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == me_) continue;
    const Need need{kind, rank, number};
    if (Met(need)) continue;
    need_ = need;
    return false;
  }
  return true;
}

bool Engine::Give(Task* task) {
  const uint64_t block = task->given;
  const uint64_t number = streamed_ + block;
  if (number >= stage_.slots && !AllHave(Need::kTaken, number - stage_.slots)) {
    return false;
  }
  const size_t each = SizeOf(task->operation.slice.type);
  for (int part = 0; part < size_; ++part) {
    if (!Gives(task->operation, me_, part)) continue;
    const Range piece = task->blocks.PieceOf(part, block);
    const MonoTime start = MonotonicNow();
    (store_policy_.past_caches() ? StreamCopy : CopyBytes)(
        Staged(me_, block, part), task->placement.local + piece.first * each,
        piece.count * each);
    store_policy_.Add(piece.count * each, MonotonicNow() - start);
  }
  ++task->given;
  control(me_)->given.store(number + 1, std::memory_order_release);
  Kick(wait_code::Stage(me_));
  return true;
}

bool Engine::ReducePiece(Task* task) {
  const Operation& operation = task->operation;
  const uint64_t block = task->reduced;
  const uint64_t number = streamed_ + block;
  if (!AllHave(Need::kGiven, number)) return false;
  const Range piece = task->blocks.PieceOf(me_, block);
  if (Reduces(operation) && piece.count > 0) {
    const size_t each = SizeOf(operation.slice.type);
    unsigned char* const own = task->placement.local + piece.first * each;
    for (int rank = 0; rank < size_; ++rank) {
      ins_[rank] = rank == me_ ? own : Staged(rank, block, me_);
    }
    void* const outs[] = {own, Staged(me_, block, me_)};
    const bool for_all = operation.kind == CollectiveKind::kAllReduce;
    const bool at_once = for_all && !store_policy_.past_caches();
    ReduceAllFunctionFor(operation.slice.type, operation.op, instructions_)(
        outs, at_once ? 2 : 1, ins_.data(), size_, piece.count);
    if (for_all && !at_once) StreamCopy(outs[1], own, piece.count * each);
  }
  ++task->reduced;
  control(me_)->reduced.store(number + 1, std::memory_order_release);
  Kick(wait_code::Stage(me_));
  return true;
}

bool Engine::Take(Task* task) {
  const Operation& operation = task->operation;
  const uint64_t block = task->taken;
  const uint64_t number = streamed_ + block;
  // What is not reduced was given, which ReducePiece has waited for.
  if (operation.kind == CollectiveKind::kAllReduce &&
      !AllHave(Need::kReduced, number)) {
    return false;
  }
  const size_t each = SizeOf(operation.slice.type);
  for (int part = 0; part < size_; ++part) {
    const int source = SourceOf(operation, me_, part);
    if (source < 0) continue;
    const Range piece = task->blocks.PieceOf(part, block);
    std::memcpy(task->placement.local + piece.first * each,
                Staged(source, block, part), piece.count * each);
  }
  ++task->taken;
  control(me_)->taken.store(number + 1, std::memory_order_release);
  Kick(wait_code::Stage(me_));
  return true;
}

}  // namespace lockstep::shm
