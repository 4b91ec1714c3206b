#include "worker/collective/hierarchical/stage_plan.h"

#include <algorithm>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

class Planner {
 public:
  Planner(const HostLayout& layout, int rank, const Operation& operation)
      : layout_(layout),
        operation_(operation),
        rank_(rank),
        local_size_(layout.local_size(rank)),
        leader_(layout.leader(rank)),
        part_of_(operation.part_of == OperationWords() ? WordsOf(operation)
                                                       : operation.part_of) {}

  StagePlan Plan() {
    switch (operation_.kind) {
      case CollectiveKind::kAllReduce:
        AllReduce();
        break;
      case CollectiveKind::kReduceScatter:
        ReduceScatter();
        break;
      case CollectiveKind::kAllGather:
        AllGather();
        break;
      case CollectiveKind::kBroadcast:
        Broadcast();
        break;
      case CollectiveKind::kBarrier:
        Barrier();
        break;
      case CollectiveKind::kAllToAll:  // See host_exchange.h.
        break;
    }
    return std::move(plan_);
  }

 private:
  Operation Stage(CollectiveKind kind, size_t from, size_t count,
                  int root = 0) const {
    Operation stage = operation_;
    stage.kind = kind;
    stage.slice.offset = operation_.slice.offset + from;
    stage.slice.count = count;
    stage.root = root;
    stage.part_of = part_of_;
    return stage;
  }

  // ---- Reductions ----

  void AllReduce() {
    const Slice& slice = operation_.slice;
    const size_t bytes = slice.count * SizeOf(slice.type);
    const size_t part = slice.count / local_size_;
    if (!layout_.equal || local_size_ == 1 || layout_.hosts() == 1 ||
        bytes < kSmallBytes || part == 0) {
      return ByLeaders(0, slice.count);
    }
    const size_t step =
        std::max<size_t>(1, kSliceChunkBytes / SizeOf(slice.type));
    for (size_t done = 0; done < part; done += step) {
      BySlices(done * local_size_, std::min(step, part - done));
    }
    const size_t head = part * local_size_;
    if (head < slice.count) ByLeaders(head, slice.count - head);
  }

  // Of each host's block as many elements, so that what the ranks of a place
  // have of all blocks is cut evenly.
  void ReduceScatter() {
    const Slice& slice = operation_.slice;
    if (!layout_.contiguous || local_size_ == 1 || layout_.hosts() == 1 ||
        slice.count * SizeOf(slice.type) < kSmallBytes) {
      return AllReduce();
    }
    const auto hosts = static_cast<size_t>(layout_.hosts());
    const size_t block = slice.count / hosts;
    const size_t part = block / local_size_;
    const size_t step =
        std::max<size_t>(1, kSliceChunkBytes / SizeOf(slice.type) / hosts);
    for (size_t done = 0; done < part; done += step) {
      ScatterSome(block, done * local_size_, std::min(step, part - done));
    }
  }

  // `part` elements for each rank of each host.
  void ScatterSome(size_t block, size_t from, size_t part) {
    const auto hosts = static_cast<size_t>(layout_.hosts());
    const size_t all = part * local_size_;
    const size_t mine = from + layout_.place[rank_] * part;
    Chunk chunk;
    for (size_t host = 0; host < hosts; ++host) {
      const size_t begin = host * block;
      chunk.before.push_back(
          Reducing(CollectiveKind::kReduceScatter, begin + from, all));
      chunk.packed.push_back({operation_.slice.offset + begin + mine, part});
    }
    chunk.across = Reducing(CollectiveKind::kReduceScatter, 0, hosts * part);
    chunk.across->slice.offset = 0;
    const size_t own = layout_.host[rank_] * block;
    chunk.divide_by = Divisor();
    chunk.reduced = {operation_.slice.offset + own + mine, part};
    chunk.after = Stage(CollectiveKind::kAllGather, own + from, all);
    plan_.chunks.push_back(chunk);
  }

  // `part` elements of each rank of the host.
  void BySlices(size_t from, size_t part) {
    Chunk chunk;
    const size_t all = part * local_size_;
    chunk.before.push_back(Reducing(CollectiveKind::kReduceScatter, from, all));
    chunk.across = Reducing(CollectiveKind::kAllReduce,
                            from + layout_.place[rank_] * part, part);
    chunk.divide_by = Divisor();
    chunk.reduced = {chunk.across->slice.offset, part};
    chunk.after = Stage(CollectiveKind::kAllGather, from, all);
    plan_.chunks.push_back(chunk);
  }

  // Also where there is one host only, or one rank on each.
  void ByLeaders(size_t from, size_t count) {
    const size_t step = ChunkOfLeaders(count);
    size_t done = 0;
    do {
      const size_t some = std::min(step, count - done);
      Chunk chunk;
      if (local_size_ > 1) {
        chunk.before.push_back(
            Reducing(CollectiveKind::kAllReduce, from + done, some));
      }
      if (leader_ && layout_.hosts() > 1) {
        chunk.across = Reducing(CollectiveKind::kAllReduce, from + done, some);
        if (Weighted()) {
          chunk.across->op = ReduceOp::kSum;
          chunk.weight = static_cast<float>(local_size_) /
                         static_cast<float>(layout_.size());
        }
        chunk.divide_by = Divisor();
        chunk.reduced = {chunk.across->slice.offset, some};
      }
      if (local_size_ > 1 && layout_.hosts() > 1) {
        chunk.after = Stage(CollectiveKind::kBroadcast, from + done, some);
      }
      plan_.chunks.push_back(chunk);
      done += some;
    } while (done < count);
  }

  // Elements; the same on all hosts, whatever their sizes. With one stage
  // there is nothing to overlap.
  size_t ChunkOfLeaders(size_t count) const {
    if (layout_.hosts() == 1 || layout_.hosts() == layout_.size()) {
      return std::max<size_t>(1, count);
    }
    return std::max<size_t>(
        1, 2 * kSliceChunkBytes / SizeOf(operation_.slice.type));
  }

  // A mean is a sum that is divided once, at the end: as exact as can be. In 16
  // bits a host's sum could overflow, so that one is made of the hosts' means:
  // where hosts are equal, their mean is the mean; else each is weighted with
  // its share of the ranks, and they are added.
  bool SumsFirst() const {
    return operation_.op == ReduceOp::kMean && layout_.hosts() > 1 &&
           layout_.hosts() < layout_.size() && !Is16Bit(operation_.slice.type);
  }

  bool Weighted() const {
    return operation_.op == ReduceOp::kMean && !layout_.equal &&
           Is16Bit(operation_.slice.type);
  }

  Operation Reducing(CollectiveKind kind, size_t from, size_t count) const {
    Operation stage = Stage(kind, from, count);
    if (SumsFirst()) stage.op = ReduceOp::kSum;
    return stage;
  }

  int Divisor() const { return SumsFirst() ? layout_.size() : 0; }

  // ---- Moves ----

  void AllGather() {
    const size_t count = operation_.slice.count;
    if (!layout_.contiguous) return AllGatherBySum();
    const size_t block = count / layout_.hosts();
    Chunk chunk;
    if (local_size_ > 1) {
      chunk.before.push_back(Stage(CollectiveKind::kAllGather,
                                   layout_.host[rank_] * block, block));
    }
    if (leader_ && layout_.hosts() > 1) {
      chunk.across = Stage(CollectiveKind::kAllGather, 0, count);
    }
    if (local_size_ > 1 && layout_.hosts() > 1) {
      chunk.after = Stage(CollectiveKind::kBroadcast, 0, count);
    }
    plan_.chunks.push_back(chunk);
  }

  // Where the parts of a host are not side by side: each rank adds its own to
  // zeros, as integers of the same width, so that no bit changes.
  void AllGatherBySum() {
    plan_.zero_others = true;
    Slice& slice = operation_.slice;
    const size_t element = SizeOf(slice.type);
    if (element == 8) {
      slice.type = DataType::kInt64;
    } else if (element == 4) {
      slice.type = DataType::kInt32;
    } else {
      slice.type = DataType::kUint8;
      slice.offset *= element;
      slice.count *= element;
    }
    operation_.op = ReduceOp::kSum;
    AllReduce();
  }

  void Broadcast() {
    const int root_host = layout_.host[operation_.root];
    const bool mine = layout_.host[rank_] == root_host;
    const size_t count = operation_.slice.count;
    const size_t step = ChunkOfLeaders(count);
    size_t done = 0;
    do {
      const size_t some = std::min(step, count - done);
      Chunk chunk;
      if (local_size_ > 1 && mine) {
        chunk.before.push_back(Stage(CollectiveKind::kBroadcast, done, some,
                                     layout_.place[operation_.root]));
      }
      if (leader_ && layout_.hosts() > 1) {
        chunk.across = Stage(CollectiveKind::kBroadcast, done, some, root_host);
      }
      if (local_size_ > 1 && !mine) {
        chunk.after = Stage(CollectiveKind::kBroadcast, done, some);
      }
      plan_.chunks.push_back(chunk);
      done += some;
    } while (done < count);
  }

  void Barrier() {
    Chunk chunk;
    const Operation barrier{.kind = CollectiveKind::kBarrier,
                            .part_of = part_of_};
    if (local_size_ > 1) chunk.before.push_back(barrier);
    if (leader_ && layout_.hosts() > 1) chunk.across = barrier;
    if (local_size_ > 1 && layout_.hosts() > 1) chunk.after = barrier;
    plan_.chunks.push_back(chunk);
  }

  const HostLayout& layout_;
  Operation operation_;
  const int rank_;
  const int local_size_;
  const bool leader_;
  const OperationWords part_of_;
  StagePlan plan_;
};

}  // namespace

bool MayOverlap(const HostLayout& layout, const Operation& operation) {
  return layout.hosts() > 1 && layout.hosts() < layout.size() &&
         (operation.kind == CollectiveKind::kAllReduce ||
          operation.kind == CollectiveKind::kReduceScatter) &&
         operation.slice.count * SizeOf(operation.slice.type) >= kOverlapBytes;
}

StagePlan PlanStages(const HostLayout& layout, int rank,
                     const Operation& operation) {
  return Planner(layout, rank, operation).Plan();
}

std::string DescribeStages(const HostLayout& layout) {
  if (layout.equal) {
    return fmt::format(
        "hierarchical: {} hosts of {} ranks; from {} KiB on each rank reduces "
        "its slice with those of its place on the other hosts, less goes "
        "through one rank of each host",
        layout.hosts(), layout.ranks[0].size(), kSmallBytes >> 10);
  }
  return fmt::format(
      "hierarchical: {} ranks on {} hosts, not equally many on each; one rank "
      "of each host reduces between them",
      layout.size(), layout.hosts());
}

}  // namespace lockstep::worker::collective::hierarchical
