#include "worker/collective/tcp/algorithms.h"

#include <algorithm>

#include "worker/collective/operation.h"
#include "worker/collective/tcp/ring_pass.h"

namespace lockstep::worker::collective::tcp {
namespace {

// Elements of a block of 16-bit operands that are exchanged at a time.
constexpr size_t kExchangeBlock = 64 << 10;
constexpr size_t kWidenedBlock = 4 << 20;

}  // namespace

Algorithms::Algorithms(Mesh* mesh, const Plan& plan)
    : mesh_(mesh),
      rank_(mesh->rank()),
      size_(mesh->size()),
      group_(size_),
      member_(group_.MemberOf(rank_)) {
  SetPlan(plan);
}

void Algorithms::SetPlan(const Plan& plan) {
  plan_ = plan;
  mesh_->links()->UseStreams(plan.streams);
}

void Algorithms::Trim() {
  scratch_ = {};
  wide_ = {};
}

char* Algorithms::Scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

Status Algorithms::Run(const Operation& operation) {
  const Slice& slice = operation.slice;
  if (operation.kind == CollectiveKind::kAllToAll) return AllToAll(operation);
  if (operation.kind == CollectiveKind::kBarrier || slice.count == 0) {
    return Barrier();
  }
  const Combiner combiner(slice.type, operation.op, size_);
  const size_t element = SizeOf(slice.type);
  const Vector vector = {
      static_cast<char*>(slice.buffer->data) + slice.offset * element,
      slice.count, element, &combiner};
  switch (operation.kind) {
    case CollectiveKind::kAllReduce:
      return AllReduce(operation, vector);
    case CollectiveKind::kReduceScatter:
      if (!Is16Bit(slice.type) || size_ == 2) return Ring(vector, true, false);
      return size_ <= plan_.mesh_ranks ? AllReduceExchanged(vector, false)
                                       : AllReduceWidened(operation, vector);
    case CollectiveKind::kAllGather:
      return AllGather(vector);
    case CollectiveKind::kBroadcast:
      return Broadcast(vector, operation.root);
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBarrier:
      break;
  }
  return Internal("tcp has no such operation");
}

Status Algorithms::AllReduce(const Operation& operation, const Vector& vector) {
  const bool pairs = size_ == 2;
  if (!Is16Bit(operation.slice.type) || pairs) return AllReduceFloats(vector);
  if (vector.count * vector.element < plan_.halving_below ||
      size_ > plan_.mesh_ranks) {
    return AllReduceWidened(operation, vector);
  }
  return AllReduceExchanged(vector, true);
}

// Of types whose partial results have the type of the operands.
Status Algorithms::AllReduceFloats(const Vector& vector) {
  const size_t bytes = vector.count * vector.element;
  if (bytes >= plan_.halving_below && bytes >= plan_.doubling_below) {
    return Ring(vector, true, true);
  }
  LOCKSTEP_RETURN_IF_ERROR(Fold(vector));
  if (member_ >= 0) {
    LOCKSTEP_RETURN_IF_ERROR(bytes < plan_.doubling_below ? Doubling(vector)
                                                          : Halving(vector));
  }
  return Unfold(vector);
}

// 16-bit operands as float32, a block at a time.
Status Algorithms::AllReduceWidened(const Operation& operation,
                                    const Vector& vector) {
  const DataType type = operation.slice.type;
  const Combiner combiner(DataType::kFloat32, operation.op, size_);
  // Several pieces for each rank, where that is not too much memory.
  const size_t block =
      std::max(plan_.halving_below / 2,
               std::min<size_t>(plan_.chunk * 2 * size_, kWidenedBlock));
  wide_.resize(std::min(vector.count, block));
  for (size_t begin = 0; begin < vector.count; begin += block) {
    const size_t count = std::min(block, vector.count - begin);
    Widen(type, vector.at(begin), wide_.data(), count);
    const Vector wide = {reinterpret_cast<char*>(wide_.data()), count,
                         sizeof(float), &combiner};
    LOCKSTEP_RETURN_IF_ERROR(AllReduceFloats(wide));
    Narrow(type, wide_.data(), vector.at(begin), count);
  }
  return OkStatus();
}

// 16-bit operands go to the rank whose part they are, which combines all in
// the order of the ranks. In round k a rank sends to the k-th after it.
Status Algorithms::AllReduceExchanged(const Vector& vector, bool gather) {
  const Range mine = PartOf(vector.count, rank_, size_);
  const size_t largest = LargestPart(vector.count, size_);
  const size_t block = std::min(largest, kExchangeBlock);
  char* const scratch = Scratch(block * vector.element * size_);
  std::vector<const void*> operands(size_);
  for (int k = 1; k < size_; ++k) {
    LOCKSTEP_RETURN_IF_ERROR(Announce((rank_ + k) % size_));
  }
  for (size_t begin = 0; begin < largest; begin += block) {
    const auto clip = [&](Range part) -> Range {
      return {std::min(part.begin + begin, part.end),
              std::min(part.begin + begin + block, part.end)};
    };
    const Range own = clip(mine);
    operands[rank_] = vector.at(own.begin);
    for (int k = 1; k < size_; ++k) {
      const int to = (rank_ + k) % size_;
      const int from = (rank_ + size_ - k) % size_;
      char* const place = scratch + from * block * vector.element;
      operands[from] = place;
      const Range theirs = clip(PartOf(vector.count, to, size_));
      LOCKSTEP_RETURN_IF_ERROR(mesh_->Exchange(
          mesh_->To(to, vector.at(theirs.begin), vector.bytes(theirs)),
          mesh_->From(from, place, vector.bytes(own))));
    }
    vector.combiner->CombineAll(vector.at(own.begin), operands.data(), size_,
                                own.end - own.begin);
  }
  return gather ? Ring(vector, false, true) : OkStatus();
}

// Says to `peer` which operation this rank runs.
Status Algorithms::Announce(int peer) {
  return mesh_->Exchange(mesh_->To(peer, nullptr, 0), {});
}

Status Algorithms::GiveTo(int peer, const void* data, size_t bytes) {
  return mesh_->Exchange(mesh_->To(peer, data, bytes),
                         mesh_->From(peer, nullptr, 0));
}

Status Algorithms::TakeFrom(int peer, void* data, size_t bytes) {
  return mesh_->Exchange(mesh_->To(peer, nullptr, 0),
                         mesh_->From(peer, data, bytes));
}

Status Algorithms::Fold(const Vector& vector) {
  const int pair = group_.PairOf(rank_);
  if (pair < 0) return OkStatus();
  const size_t bytes = vector.count * vector.element;
  if (member_ < 0) return GiveTo(pair, vector.data, bytes);
  char* const theirs = Scratch(bytes);
  LOCKSTEP_RETURN_IF_ERROR(TakeFrom(pair, theirs, bytes));
  vector.combiner->Combine(vector.data, theirs, vector.data, vector.count,
                           false);
  return OkStatus();
}

Status Algorithms::Unfold(const Vector& vector) {
  const int pair = group_.PairOf(rank_);
  if (pair < 0) return OkStatus();
  const size_t bytes = vector.count * vector.element;
  return member_ < 0 ? TakeFrom(pair, vector.data, bytes)
                     : GiveTo(pair, vector.data, bytes);
}

// Combines what `partner` sent with this rank's, the lower rank's first: both
// do, and get the same bits.
Status Algorithms::Combined(const Vector& vector, int partner, Range mine,
                            const char* theirs, bool last) {
  char* const own = vector.at(mine.begin);
  const bool lower = partner < rank_;
  vector.combiner->Combine(own, lower ? theirs : own, lower ? own : theirs,
                           mine.end - mine.begin, last);
  return OkStatus();
}

Status Algorithms::Doubling(const Vector& vector) {
  const Range all = {0, vector.count};
  char* const theirs = Scratch(vector.bytes(all));
  for (int bit = 1; bit < group_.size; bit *= 2) {
    const int partner = group_.RankOf(member_ ^ bit);
    LOCKSTEP_RETURN_IF_ERROR(
        mesh_->Exchange(mesh_->To(partner, vector.data, vector.bytes(all)),
                        mesh_->From(partner, theirs, vector.bytes(all))));
    LOCKSTEP_RETURN_IF_ERROR(
        Combined(vector, partner, all, theirs, bit * 2 == group_.size));
  }
  return OkStatus();
}

// Halves what is left in each round, then goes back the same way.
Status Algorithms::Halving(const Vector& vector) {
  const Range all = {0, vector.count};
  char* const theirs = Scratch(std::max(vector.bytes(PieceOf(all, 2, 0)),
                                        vector.bytes(PieceOf(all, 2, 1))));
  std::vector<Range> ranges = {{0, vector.count}};
  for (int bit = 1; bit < group_.size; bit *= 2) {
    const int partner = group_.RankOf(member_ ^ bit);
    const int upper = (member_ & bit) != 0 ? 1 : 0;
    const Range keep = PieceOf(ranges.back(), 2, upper);
    const Range give = PieceOf(ranges.back(), 2, 1 - upper);
    LOCKSTEP_RETURN_IF_ERROR(mesh_->Exchange(
        mesh_->To(partner, vector.at(give.begin), vector.bytes(give)),
        mesh_->From(partner, theirs, vector.bytes(keep))));
    LOCKSTEP_RETURN_IF_ERROR(
        Combined(vector, partner, keep, theirs, bit * 2 == group_.size));
    ranges.push_back(keep);
  }
  for (int bit = group_.size / 2; bit > 0; bit /= 2) {
    const int partner = group_.RankOf(member_ ^ bit);
    const int upper = (member_ & bit) != 0 ? 1 : 0;
    const Range have = ranges.back();
    ranges.pop_back();
    const Range get = PieceOf(ranges.back(), 2, 1 - upper);
    LOCKSTEP_RETURN_IF_ERROR(mesh_->Exchange(
        mesh_->To(partner, vector.at(have.begin), vector.bytes(have)),
        mesh_->From(partner, vector.at(get.begin), vector.bytes(get))));
  }
  return OkStatus();
}

Status Algorithms::Ring(const Vector& vector, bool reduces, bool gathers) {
  return RingPass(mesh_, plan_, vector, Scratch(plan_.chunk), reduces, gathers)
      .Run();
}

// Each rank passes on to the next what it has: all in one piece, which grows
// while it comes, or with several streams in pieces that take them by turns.
Status Algorithms::Chain(const Vector& vector, int root) {
  const int next = (rank_ + 1) % size_;
  const int before = (rank_ + size_ - 1) % size_;
  const size_t bytes = vector.count * vector.element;
  const size_t pieces =
      mesh_->links()->streams() == 1 ? 1 : PiecesFor(bytes, plan_.chunk);
  const bool receives = rank_ != root;
  const bool sends = next != root;
  size_t in = receives ? 0 : pieces;
  size_t out = sends ? 0 : pieces;
  const auto piece = [&](size_t i) { return PieceOf({0, bytes}, pieces, i); };
  const auto next_in = [&]() -> Flow {
    if (in == pieces) return {};
    const Range range = piece(in);
    return mesh_->From(before, vector.data + range.begin,
                       range.end - range.begin, StreamOf(in));
  };
  const auto next_out = [&]() -> Flow {
    if (out == pieces) return {};
    return mesh_->To(next, vector.data + piece(out).begin, 0, StreamOf(out));
  };
  Flow receive = next_in();
  Flow send = next_out();
  Flow head_out;
  Flow head_in;
  if (receives) head_out = mesh_->To(before, nullptr, 0);
  if (sends) head_in = mesh_->From(next, nullptr, 0);
  while (in < pieces || out < pieces || !head_out.sent() ||
         !head_in.received()) {
    bool moved = mesh_->Send(&head_out);
    moved |= mesh_->Receive(&head_in);
    if (in < pieces) {
      moved |= mesh_->Receive(&receive);
      if (mesh_->error().ok() && receive.received()) {
        ++in;
        receive = next_in();
        moved = true;
      }
    }
    if (out < pieces && out <= in) {
      const Range range = piece(out);
      const size_t whole = range.end - range.begin;
      send.bytes = out < in ? whole : receive.done;
      moved |= mesh_->Send(&send);
      if (send.sent() && send.done == whole) {
        ++out;
        send = next_out();
        moved = true;
      }
    }
    if (moved && mesh_->error().ok() && !mesh_->links()->IsCut()) {
      mesh_->Resume();
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(mesh_->Pause(send, receive, head_out, head_in));
  }
  mesh_->Resume();
  return mesh_->error();
}

// A binomial tree of the group, turned so that the root's member is its root.
Status Algorithms::Tree(const Vector& vector, int root) {
  const size_t bytes = vector.count * vector.element;
  const int pair = group_.PairOf(rank_);
  const int acts = group_.MemberOf(root) >= 0 ? root : group_.PairOf(root);
  if (acts != root && rank_ == root) return GiveTo(pair, vector.data, bytes);
  if (acts != root && rank_ == acts) {
    LOCKSTEP_RETURN_IF_ERROR(TakeFrom(root, vector.data, bytes));
  }
  if (member_ < 0) return TakeFrom(pair, vector.data, bytes);
  const int turned = member_ ^ group_.MemberOf(acts);
  int bit = group_.size / 2;
  if (turned != 0) {
    const int lowest = turned & -turned;
    LOCKSTEP_RETURN_IF_ERROR(
        TakeFrom(group_.RankOf(member_ ^ lowest), vector.data, bytes));
    bit = lowest / 2;
  }
  std::vector<int> children;
  for (; bit > 0; bit /= 2) children.push_back(group_.RankOf(member_ ^ bit));
  if (pair >= 0 && pair != root) children.push_back(pair);
  // A late one keeps none of the others waiting.
  for (const int child : children) {
    LOCKSTEP_RETURN_IF_ERROR(
        mesh_->Exchange(mesh_->To(child, vector.data, bytes), {}));
  }
  for (const int child : children) {
    LOCKSTEP_RETURN_IF_ERROR(
        mesh_->Exchange({}, mesh_->From(child, nullptr, 0)));
  }
  return OkStatus();
}

Status Algorithms::Broadcast(const Vector& vector, int root) {
  const bool small = vector.count * vector.element <
                     std::max(plan_.halving_below, plan_.doubling_below);
  return small && size_ > 2 ? Tree(vector, root) : Chain(vector, root);
}

// Small ones by doubling: what a member has are the parts of neighbouring
// ranks, so twice as many are again in one piece.
Status Algorithms::AllGather(const Vector& vector) {
  const size_t bytes = vector.count * vector.element;
  if (bytes >= std::max(plan_.halving_below, plan_.doubling_below)) {
    return Ring(vector, false, true);
  }
  const size_t part = vector.count / size_;
  const int pair = group_.PairOf(rank_);
  const auto of_rank = [&](int rank) { return vector.at(rank * part); };
  const size_t part_bytes = part * vector.element;
  if (member_ < 0) {
    LOCKSTEP_RETURN_IF_ERROR(GiveTo(pair, of_rank(rank_), part_bytes));
    return TakeFrom(pair, vector.data, bytes);
  }
  if (pair >= 0) {
    LOCKSTEP_RETURN_IF_ERROR(TakeFrom(pair, of_rank(pair), part_bytes));
  }
  // The ranks of members [first, first + count).
  const auto ranks_of = [&](int first, int count) -> Range {
    const int end = first + count;
    return {
        static_cast<size_t>(group_.FirstOf(first)) * part,
        static_cast<size_t>(end == group_.size ? size_ : group_.FirstOf(end)) *
            part};
  };
  for (int bit = 1; bit < group_.size; bit *= 2) {
    const int other = member_ ^ bit;
    const Range have = ranks_of(member_ & -bit, bit);
    const Range get = ranks_of(other & -bit, bit);
    const int partner = group_.RankOf(other);
    LOCKSTEP_RETURN_IF_ERROR(mesh_->Exchange(
        mesh_->To(partner, vector.at(have.begin), vector.bytes(have)),
        mesh_->From(partner, vector.at(get.begin), vector.bytes(get))));
  }
  return pair < 0 ? OkStatus() : GiveTo(pair, vector.data, bytes);
}

// All parts at once: what came from a peer that is ahead would hide its end
// otherwise. Each rank begins with another one, so that not all send to one.
Status Algorithms::AllToAll(const Operation& operation) {
  const size_t element = SizeOf(operation.slice.type);
  std::vector<Flow> sends;
  std::vector<Flow> receives;
  for (int k = 1; k < size_; ++k) {
    const int to = (rank_ + k) % size_;
    const int from = (rank_ + size_ - k) % size_;
    const PeerPart& send = operation.sends[to];
    const PeerPart& receive = operation.receives[from];
    sends.push_back(mesh_->To(to, send.data, send.count * element));
    receives.push_back(
        mesh_->From(from, receive.data, receive.count * element));
  }
  LOCKSTEP_RETURN_IF_ERROR(mesh_->ExchangeAll(sends, receives));
  // The others have what they need by now, or their hosts do.
  const bool copied =
      CopyOwnPart(operation, rank_, [&] { return mesh_->links()->IsCut(); });
  return copied ? OkStatus() : mesh_->Pause({}, {});
}

Status Algorithms::Barrier() {
  const int pair = group_.PairOf(rank_);
  // A header says that a rank has come; that all have, the pair's lower one
  // learns by a byte.
  char all_came = 1;
  if (member_ < 0) return TakeFrom(pair, &all_came, 1);
  if (pair >= 0) LOCKSTEP_RETURN_IF_ERROR(TakeFrom(pair, nullptr, 0));
  for (int bit = 1; bit < group_.size; bit *= 2) {
    LOCKSTEP_RETURN_IF_ERROR(
        TakeFrom(group_.RankOf(member_ ^ bit), nullptr, 0));
  }
  return pair < 0 ? OkStatus() : GiveTo(pair, &all_came, 1);
}

}  // namespace lockstep::worker::collective::tcp
