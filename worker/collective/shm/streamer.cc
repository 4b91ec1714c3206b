#include "worker/collective/shm/streamer.h"

#include <cstdint>
#include <cstring>

#include "worker/collective/operation.h"
#include "worker/collective/shm/stream_copy.h"

namespace lockstep::worker::collective::shm {
namespace {

bool Reduces(const Operation& operation) {
  return operation.kind == CollectiveKind::kAllReduce ||
         operation.kind == CollectiveKind::kReduceScatter;
}

bool IsAllToAll(const Operation& operation) {
  return operation.kind == CollectiveKind::kAllToAll;
}

// Whether others need the piece of `part` that `rank` has.
bool Gives(const Operation& operation, int rank, int part) {
  if (Reduces(operation) || IsAllToAll(operation)) return part != rank;
  if (operation.kind == CollectiveKind::kAllGather) return part == rank;
  return rank == operation.root;
}

// From whom `rank` gets its piece of `part` in the end; -1: it has it.
int SourceOf(const Operation& operation, int rank, int part) {
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return part == rank ? -1 : part;
    case CollectiveKind::kBroadcast:
      return rank == operation.root ? -1 : operation.root;
    default:
      return -1;
  }
}

}  // namespace

Streamer::Streamer(const Ranks* ranks, const FailureDetector* detector,
                   Waiter* waiter, bool spins)
    : ranks_(*ranks),
      detector_(*detector),
      waiter_(*waiter),
      instructions_(BestInstructionSet()),
      stage_(Blocks::ShapeOf(ranks->size(), kStageBytes, spins)),
      ins_(ranks->size()) {}

void Streamer::Begin(const Operation& operation) {
  blocks_ = Blocks(operation, ranks_.size(), stage_);
  given_ = reduced_ = taken_ = 0;
  for (int rank = 0; rank < ranks_.size() && !stages_mapped_; ++rank) {
    (void)ranks_.segment(rank).Populate(kStagePlace, kStageBytes);
  }
  stages_mapped_ = true;
}

void Streamer::End() { before_ += blocks_.count(); }

// Oldest blocks first; more are given while nothing else can be done.
bool Streamer::Run(const Operation& operation, unsigned char* local) {
  const uint64_t count = blocks_.count();
  while (taken_ < count) {
    if (detector_.broken() && !detector_.broken_by_peer()) return false;
    if (taken_ < reduced_ && Take(operation, local)) continue;
    // A step that cannot be done tells the waiter what it needs: the oldest
    // one's counts.
    const Need oldest = waiter_.need();
    const bool waits = taken_ < reduced_;
    if (reduced_ < given_ && Reduce(operation, local)) continue;
    const Need older = waiter_.need();
    const bool waits_too = reduced_ < given_;
    if (given_ < count && Give(operation, local)) continue;
    if (waits) {
      waiter_.SetNeed(oldest);
    } else if (waits_too) {
      waiter_.SetNeed(older);
    }
    return false;
  }
  return true;
}

unsigned char* Streamer::Staged(int rank, uint64_t block, int part) const {
  const uint64_t slot = (before_ + block) % stage_.slots;
  return ranks_.segment(rank).data() + kStagePlace +
         (slot * ranks_.size() + part) * stage_.piece_bytes;
}

// Whether all ranks' counters are past `block` of the front, or the waiter
// knows whose is not.
bool Streamer::AllHave(Need::Kind kind, uint64_t number) {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    const Need need{kind, rank, number};
    if (waiter_.Met(need)) continue;
    waiter_.SetNeed(need);
    return false;
  }
  return true;
}

Streamer::Piece Streamer::PieceOf(const Operation& operation,
                                  std::span<const PeerPart> parts,
                                  unsigned char* local, int part,
                                  uint64_t block) const {
  const size_t each = SizeOf(operation.slice.type);
  if (!IsAllToAll(operation)) {
    const Range range = blocks_.PieceOf(part, block);
    return {local + range.first * each, range.count * each};
  }
  const Range range = blocks_.PieceIn(parts[part].count, block);
  return {static_cast<unsigned char*>(parts[part].data) + range.first * each,
          range.count * each};
}

bool Streamer::Give(const Operation& operation, unsigned char* local) {
  const uint64_t block = given_;
  const uint64_t number = before_ + block;
  if (number >= stage_.slots && !AllHave(Need::kTaken, number - stage_.slots)) {
    return false;
  }
  for (int part = 0; part < ranks_.size(); ++part) {
    if (!Gives(operation, ranks_.rank(), part)) continue;
    const Piece piece =
        PieceOf(operation, operation.sends, local, part, block);
    if (piece.bytes == 0) continue;
    const MonoTime start = MonotonicNow();
    (store_policy_.past_caches() ? StreamCopy : CopyBytes)(
        Staged(ranks_.rank(), block, part), piece.data, piece.bytes);
    store_policy_.Add(piece.bytes, MonotonicNow() - start);
  }
  ++given_;
  ranks_.control(ranks_.rank())
      ->given.store(number + 1, std::memory_order_release);
  waiter_.Wake(wait_code::Stage(ranks_.rank()));
  return true;
}

bool Streamer::Reduce(const Operation& operation, unsigned char* local) {
  const uint64_t block = reduced_;
  const uint64_t number = before_ + block;
  if (!AllHave(Need::kGiven, number)) return false;
  const Range piece = blocks_.PieceOf(ranks_.rank(), block);
  if (Reduces(operation) && piece.count > 0) {
    const size_t each = SizeOf(operation.slice.type);
    unsigned char* const own = local + piece.first * each;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      ins_[rank] =
          rank == ranks_.rank() ? own : Staged(rank, block, ranks_.rank());
    }
    void* const outs[] = {own, Staged(ranks_.rank(), block, ranks_.rank())};
    const bool for_all = operation.kind == CollectiveKind::kAllReduce;
    const bool at_once = for_all && !store_policy_.past_caches();
    ReduceAllFunctionFor(operation.slice.type, operation.op, instructions_)(
        outs, at_once ? 2 : 1, ins_.data(), ranks_.size(), piece.count);
    if (for_all && !at_once) StreamCopy(outs[1], own, piece.count * each);
  }
  ++reduced_;
  ranks_.control(ranks_.rank())
      ->reduced.store(number + 1, std::memory_order_release);
  waiter_.Wake(wait_code::Stage(ranks_.rank()));
  return true;
}

bool Streamer::Take(const Operation& operation, unsigned char* local) {
  const uint64_t block = taken_;
  const uint64_t number = before_ + block;
  // What is not reduced was given, which Reduce has waited for.
  if (operation.kind == CollectiveKind::kAllReduce &&
      !AllHave(Need::kReduced, number)) {
    return false;
  }
  for (int part = 0; part < ranks_.size(); ++part) {
    const int source = SourceOf(operation, ranks_.rank(), part);
    if (source < 0) continue;
    const Piece piece =
        PieceOf(operation, operation.receives, local, part, block);
    if (piece.bytes == 0) continue;
    // Of an all-to-all, a rank's pieces are by whom they are for.
    const int place = IsAllToAll(operation) ? ranks_.rank() : part;
    std::memcpy(piece.data, Staged(source, block, place), piece.bytes);
  }
  if (IsAllToAll(operation)) {
    const Range own = blocks_.PieceIn(SIZE_MAX, block);
    CopyOwnPart(operation, ranks_.rank(), own.first, own.count);
  }
  ++taken_;
  ranks_.control(ranks_.rank())
      ->taken.store(number + 1, std::memory_order_release);
  waiter_.Wake(wait_code::Stage(ranks_.rank()));
  return true;
}

}  // namespace lockstep::worker::collective::shm
