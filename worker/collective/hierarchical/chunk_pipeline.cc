#include "worker/collective/hierarchical/chunk_pipeline.h"

#include <cstring>
#include <optional>
#include <utility>

#include "worker/collective/hierarchical/slices.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

char* At(const Slice& slice, const Piece& piece) {
  return static_cast<char*>(slice.buffer->data) +
         piece.offset * SizeOf(slice.type);
}

// The part of the operation's slice that the chunk reduces.
Slice Reduced(const Slice& slice, const Chunk& chunk) {
  Slice reduced = slice;
  reduced.offset = chunk.reduced.offset;
  reduced.count = chunk.reduced.count;
  return reduced;
}

}  // namespace

ChunkPipeline::ChunkPipeline(const HostLayout* layout, int rank, Sides* sides,
                             HostAgreement* agreement,
                             std::vector<const Buffer*> scratch)
    : layout_(*layout),
      rank_(rank),
      sides_(*sides),
      agreement_(*agreement),
      scratch_(std::move(scratch)) {}

std::unique_ptr<ChunkPipeline::Running> ChunkPipeline::Plan(
    const Operation& operation) const {
  auto running = std::make_unique<Running>();
  running->operation = operation;
  running->plan = PlanStages(layout_, rank_, operation);
  if (running->plan.zero_others) {
    ZeroOthers(operation.slice, rank_, layout_.size());
  }
  return running;
}

Status ChunkPipeline::Run(const Operation& operation, MonoTime deadline) {
  Status status = RunChunks(operation, deadline);
  if (!status.ok()) {
    // What is under way has been cut: this waits until nothing is.
    pending_.clear();
    ahead_.reset();
  }
  return status;
}

Status ChunkPipeline::RunChunks(const Operation& operation, MonoTime deadline) {
  std::unique_ptr<Running> running =
      ahead_ != nullptr ? std::move(ahead_) : Plan(operation);
  const uint64_t number = ++operations_;
  while (!running->all_begun()) {
    LOCKSTEP_RETURN_IF_ERROR(Begin(running.get(), number, deadline));
    if (pending_.size() <= kAhead) continue;
    LOCKSTEP_RETURN_IF_ERROR(FinishFirst(deadline));
  }
  while (!pending_.empty() && pending_.front().operation == number) {
    LOCKSTEP_RETURN_IF_ERROR(BeginAhead(*running, number + 1, deadline));
    LOCKSTEP_RETURN_IF_ERROR(FinishFirst(deadline));
  }
  return OkStatus();
}

Status ChunkPipeline::Begin(Running* running, uint64_t number,
                            MonoTime deadline) {
  const Chunk& chunk = running->plan.chunks[running->begun++];
  for (const Operation& stage : chunk.before) {
    LOCKSTEP_RETURN_IF_ERROR(RunWithin(stage, deadline));
  }
  Pending next{number, chunk, running->operation.slice, nullptr, nullptr};
  if (chunk.across) {
    if (chunk.weight != 1) Scale(Reduced(next.slice, chunk), chunk.weight);
    Operation across = *chunk.across;
    across.slice.buffer =
        sides_.memory()->Between(running->operation.slice.buffer);
    if (!chunk.packed.empty()) {
      next.scratch = scratch_[scratch_turn_++ % scratch_.size()];
      across.slice.buffer = next.scratch;
      Pack(next);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(next.across, sides_.StartBetween(across));
  }
  pending_.push_back(std::move(next));
  return OkStatus();
}

// While the last chunks of `running` are between the hosts: begins one chunk of
// the operation behind it, where every rank of this host has it by now.
Status ChunkPipeline::BeginAhead(const Running& running, uint64_t number,
                                 MonoTime deadline) {
  if (!MayOverlap(layout_, running.operation)) return OkStatus();
  if (ahead_ == nullptr) {
    const std::optional<Operation> next = queue_->Next();
    const bool mine = next && MayOverlap(layout_, *next) &&
                      Apart(running.operation.slice, next->slice);
    LOCKSTEP_ASSIGN_OR_RETURN(
        const bool all, agreement_.All(mine, running.operation, deadline));
    if (!all) return OkStatus();
    if (!queue_->BeginNext()) {
      // Aborted since Next. The others of the host go on with that operation,
      // so what this rank would start there instead could only be refused.
      sides_.Cut();
      return sides_.error();
    }
    ahead_ = Plan(*next);
  }
  if (ahead_->all_begun()) return OkStatus();
  return Begin(ahead_.get(), number, deadline);
}

Status ChunkPipeline::FinishFirst(MonoTime deadline) {
  Pending* const pending = &pending_.front();
  const Chunk& chunk = pending->chunk;
  if (pending->across) {
    LOCKSTEP_RETURN_IF_ERROR(
        sides_.WaitBetween(pending->across.get(), deadline));
    pending->across.reset();
    Unpack(*pending);
    if (chunk.divide_by > 0) {
      Divide(Reduced(pending->slice, chunk), chunk.divide_by);
    }
  }
  if (chunk.after) LOCKSTEP_RETURN_IF_ERROR(RunWithin(*chunk.after, deadline));
  pending_.pop_front();
  return OkStatus();
}

// Only before the hosts meet is a wait within a host the fault of the last rank
// to come; after it, that of the network.
Status ChunkPipeline::RunWithin(Operation operation, MonoTime deadline) {
  operation.slice.buffer = sides_.memory()->Within(operation.slice.buffer);
  return sides_.RunWithin(operation, deadline);
}

// Copies the pieces that go between the hosts side by side.
void ChunkPipeline::Pack(const Pending& pending) {
  const size_t element = SizeOf(pending.slice.type);
  auto* to = static_cast<char*>(pending.scratch->data);
  for (const Piece& piece : pending.chunk.packed) {
    std::memcpy(to, At(pending.slice, piece), piece.count * element);
    to += piece.count * element;
  }
}

// Copies what came of this host's piece to its place.
void ChunkPipeline::Unpack(const Pending& pending) const {
  if (pending.scratch == nullptr) return;
  const Piece& own = pending.chunk.reduced;
  const size_t bytes = own.count * SizeOf(pending.slice.type);
  std::memcpy(
      At(pending.slice, own),
      static_cast<char*>(pending.scratch->data) + layout_.host[rank_] * bytes,
      bytes);
}

}  // namespace lockstep::worker::collective::hierarchical
