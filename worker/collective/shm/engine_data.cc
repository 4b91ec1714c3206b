// What the engine does with the data, once all have arrived.
#include <cstring>

#include "worker/collective/shm/engine.h"

namespace lockstep::shm {
namespace {

unsigned char* At(unsigned char* base, size_t element, size_t bytes_each) {
  return base + element * bytes_each;
}

}  // namespace

void Engine::RunSmall(const Task& task) {
  if (!task.has_data) return;
  const Operation& operation = task.operation;
  const size_t each = SizeOf(operation.slice.type);
  const size_t count = operation.slice.count;
  const size_t part = count / size_;
  unsigned char* const local = task.placement.local;
  const auto slot = [&](int rank) {
    return static_cast<unsigned char*>(control(rank)->small[task.slot]);
  };
  Range result{0, count};
  switch (operation.kind) {
    case CollectiveKind::kReduceScatter:
      result = {part * me_, part};
      [[fallthrough]];
    case CollectiveKind::kAllReduce: {
      for (int rank = 0; rank < size_; ++rank) {
        ins_[rank] = At(slot(rank), result.first, each);
      }
      void* const out = At(local, result.first, each);
      ReduceAllFunctionFor(operation.slice.type, operation.op, instructions_)(
          &out, 1, ins_.data(), size_, result.count);
      return;
    }
    case CollectiveKind::kAllGather:
      for (int rank = 0; rank < size_; ++rank) {
        if (rank == me_) continue;
        std::memcpy(At(local, part * rank, each), slot(rank), part * each);
      }
      return;
    case CollectiveKind::kBroadcast:
      if (me_ != operation.root) {
        std::memcpy(local, slot(operation.root), count * each);
      }
      return;
    case CollectiveKind::kBarrier:
      return;
  }
}

bool Engine::RunShared(Task* task) {
  Entry& first = entry(0);
  const uint32_t count = task->chunks.count();
  need_ = {Need::kCompletion, -1, count};
  if (!task->no_more_chunks) {
    Entry& mine = entry(me_);
    mine.works.store(1, std::memory_order_relaxed);
    uint32_t did = 0;
    while (did < count && !detector_.broken()) {
      const uint32_t next =
          first.claimed.fetch_add(1, std::memory_order_relaxed);
      if (next >= count) break;
      DoChunk(*task, task->chunks.At(next));
      ++did;
    }
    task->no_more_chunks = true;
    mine.works.store(0, std::memory_order_relaxed);
    if (did > 0) {
      const uint32_t all =
          did + first.completed.fetch_add(did, std::memory_order_acq_rel);
      if (all == count) Kick(wait_code::kCompletion);
    }
  }
  return Met(need_);
}

void Engine::DoChunk(const Task& task, const Chunk& chunk) {
  const Operation& operation = task.operation;
  const size_t each = SizeOf(operation.slice.type);
  const auto share = [&](int rank) {
    return At(ShareOf(rank), chunk.range.first, each);
  };
  if (operation.kind == CollectiveKind::kAllReduce ||
      operation.kind == CollectiveKind::kReduceScatter) {
    for (int rank = 0; rank < size_; ++rank) {
      ins_[rank] = outs_[rank] = share(rank);
    }
    const bool all = operation.kind == CollectiveKind::kAllReduce;
    if (!all) outs_[0] = share(chunk.part);
    ReduceAllFunctionFor(operation.slice.type, operation.op, instructions_)(
        outs_.data(), all ? size_ : 1, ins_.data(), size_, chunk.range.count);
    return;
  }
  const int source = operation.kind == CollectiveKind::kAllGather
                         ? chunk.part
                         : operation.root;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == source) continue;
    std::memcpy(share(rank), share(source), chunk.range.count * each);
  }
}

}  // namespace lockstep::shm
