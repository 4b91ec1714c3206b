#include "worker/collective/shm/shared_reducer.h"

#include <cstring>

namespace lockstep::worker::collective::shm {
namespace {

unsigned char* At(unsigned char* base, size_t element, size_t bytes_each) {
  return base + element * bytes_each;
}

}  // namespace

SharedReducer::SharedReducer(const Ranks* ranks,
                             const FailureDetector* detector, Waiter* waiter)
    : ranks_(*ranks),
      detector_(*detector),
      waiter_(*waiter),
      instructions_(BestInstructionSet()),
      ins_(ranks->size()),
      outs_(ranks->size()) {}

void SharedReducer::RunSmall(const Operation& operation, uint32_t slot,
                             unsigned char* local) {
  const int size = ranks_.size();
  const int me = ranks_.rank();
  const size_t each = SizeOf(operation.slice.type);
  const size_t count = operation.slice.count;
  const size_t part = count / size;
  const auto data_of = [&](int rank) {
    return static_cast<unsigned char*>(ranks_.control(rank)->small[slot]);
  };
  Range result{0, count};
  switch (operation.kind) {
    case CollectiveKind::kReduceScatter:
      result = {part * me, part};
      [[fallthrough]];
    case CollectiveKind::kAllReduce: {
      for (int rank = 0; rank < size; ++rank) {
        ins_[rank] = At(data_of(rank), result.first, each);
      }
      void* const out = At(local, result.first, each);
      ReduceAllFunctionFor(operation.slice.type, operation.op, instructions_)(
          &out, 1, ins_.data(), size, result.count);
      return;
    }
    case CollectiveKind::kAllGather:
      for (int rank = 0; rank < size; ++rank) {
        if (rank == me) continue;
        std::memcpy(At(local, part * rank, each), data_of(rank), part * each);
      }
      return;
    case CollectiveKind::kBroadcast:
      if (me != operation.root) {
        std::memcpy(local, data_of(operation.root), count * each);
      }
      return;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kAllToAll:  // Always streamed.
      return;
  }
}

void SharedReducer::Begin(const Operation& operation) {
  chunks_ = Chunks(operation, ranks_.size());
  no_more_chunks_ = false;
}

bool SharedReducer::Run(const Operation& operation,
                        std::span<const Started> started) {
  Entry& first = ranks_.entry(0);
  const uint32_t count = chunks_.count();
  waiter_.SetNeed({Need::kCompletion, -1, count});
  if (!no_more_chunks_) {
    Entry& mine = ranks_.entry(ranks_.rank());
    mine.works.store(1, std::memory_order_relaxed);
    uint32_t did = 0;
    while (did < count && !detector_.broken()) {
      const uint32_t next =
          first.claimed.fetch_add(1, std::memory_order_relaxed);
      if (next >= count) break;
      RunChunk(operation, started, chunks_.At(next));
      ++did;
    }
    no_more_chunks_ = true;
    mine.works.store(0, std::memory_order_relaxed);
    if (did > 0) {
      const uint32_t all =
          did + first.completed.fetch_add(did, std::memory_order_acq_rel);
      if (all == count) waiter_.Wake(wait_code::kCompletion);
    }
  }
  return waiter_.Met(waiter_.need());
}

void SharedReducer::RunChunk(const Operation& operation,
                             std::span<const Started> started,
                             const Chunk& chunk) {
  const int size = ranks_.size();
  const size_t each = SizeOf(operation.slice.type);
  const auto share = [&](int rank) {
    return At(ranks_.segment(rank).At(started[rank].place), chunk.range.first,
              each);
  };
  if (operation.kind == CollectiveKind::kAllReduce ||
      operation.kind == CollectiveKind::kReduceScatter) {
    for (int rank = 0; rank < size; ++rank) {
      ins_[rank] = outs_[rank] = share(rank);
    }
    const bool all = operation.kind == CollectiveKind::kAllReduce;
    if (!all) outs_[0] = share(chunk.part);
    ReduceAllFunctionFor(operation.slice.type, operation.op, instructions_)(
        outs_.data(), all ? size : 1, ins_.data(), size, chunk.range.count);
    return;
  }
  const int source = operation.kind == CollectiveKind::kAllGather
                         ? chunk.part
                         : operation.root;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == source) continue;
    std::memcpy(share(rank), share(source), chunk.range.count * each);
  }
}

}  // namespace lockstep::worker::collective::shm
