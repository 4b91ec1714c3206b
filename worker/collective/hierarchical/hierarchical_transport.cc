#include "worker/collective/hierarchical/hierarchical_transport.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "worker/collective/hierarchical/plan_line.h"
#include "worker/collective/hierarchical/slices.h"
#include "worker/collective/hierarchical/stage_plan.h"
#include "worker/collective/hierarchical/staged_memory.h"
#include "worker/collective/lost_peers.h"
#include "worker/collective/operation.h"
#include "worker/collective/tcp/plan.h"

namespace lockstep::hierarchical {
namespace {

// Chunks that are between the hosts while the next is reduced within.
constexpr size_t kAhead = 2;

// "rank 3", "ranks 1, 3".
std::string Others(const std::vector<int>& ranks, int me) {
  constexpr size_t kNamed = 8;
  std::string text;
  size_t count = 0;
  for (const int rank : ranks) {
    if (rank == me || ++count > kNamed) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  }
  if (count > kNamed) text += fmt::format(" and {} more", count - kNamed);
  return (count == 1 ? "rank " : "ranks ") + text;
}
// `line` is tcp's, unless a test puts something else there.
std::string DescribeBetween(const std::string& line, int hosts) {
  const auto plan = tcp::ParsePlan(line, hosts);
  return plan.ok() ? tcp::DescribePlan(*plan, hosts) : line;
}
class HierarchicalTransport final : public Transport {
 public:
  explicit HierarchicalTransport(TransportParts parts)
      : rank_(parts.rank),
        plan_given_(parts.plan_given),
        between_line_(std::move(parts.between_line)),
        layout_(std::move(parts.layout)),
        scratch_memory_(std::move(parts.own.memory)),
        within_(std::move(parts.within)),
        between_(std::move(parts.between)),
        linked_abort_(std::move(parts.linked_abort)),
        memory_(within_.communicator.get(), between_.communicator.get()),
        agreement_(parts.own.agreement),
        scratch_(std::move(parts.own.scratch)) {
    linked_abort_->Attach(within_.communicator.get(),
                          between_.communicator.get());
  }
  ~HierarchicalTransport() override { linked_abort_->Detach(); }

  std::string_view name() const override { return "hierarchical"; }
  TransportMemory* memory() override { return &memory_; }
  bool AnyThreadMayExecute() const override { return true; }
  Status Check(const Operation&) const override { return OkStatus(); }

  std::string Plan() const override {
    if (between_line_.empty()) return DescribeStages(layout_);
    return DescribeStages(layout_) + "; between the hosts " +
           DescribeBetween(between_line_, layout_.hosts());
  }

  std::string ReductionPlan() const override {
    return HierarchicalPlanLine(layout_.host, between_line_);
  }

  // Those of each place measure at the same time, for they share the lines.
  // Then all follow the first place's plan, which is rank 0's.
  Status Tune(Duration budget, MonoTime deadline) override {
    if (plan_given_ || layout_.hosts() == 1) return OkStatus();
    std::string line;
    if (between_.communicator != nullptr) {
      stage_.store(Stage::kBetween, std::memory_order_relaxed);
      const Status tuned = between_.communicator->Tune(budget, deadline);
      if (!tuned.ok()) return Fail(between_, tuned);
      line = between_.communicator->ReductionPlan();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(line, LeadersLine(line, deadline));
    return FollowBetween(line, deadline);
  }

  Status FollowPlan(const std::string& plan, MonoTime deadline) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string line,
                              BetweenPlanOf(plan, layout_.host));
    if (layout_.hosts() > 1) {
      LOCKSTEP_RETURN_IF_ERROR(tcp::ParsePlan(line, layout_.hosts()).status());
      LOCKSTEP_RETURN_IF_ERROR(FollowBetween(line, deadline));
    }
    plan_given_ = true;
    return OkStatus();
  }

  void Cut() override {
    linked_abort_->Break(LinkedAbort::From::kOutside,
                         Aborted("it was cut off"));
  }

  std::string Waiting() const override {
    switch (stage_.load(std::memory_order_relaxed)) {
      case Stage::kWithin:
        return "waiting for " + Others(within_.ranks, rank_) +
               " of the same host";
      case Stage::kBetween:
        return "waiting for " + Others(between_.ranks, rank_) +
               " of other hosts";
      case Stage::kNone:
        break;
    }
    return "";
  }

  void SetQueue(OperationQueue* queue) override { queue_ = queue; }

  Status Execute(const Operation& operation, MonoTime deadline) override {
    const Status status = RunOperation(operation, deadline);
    if (!status.ok()) {
      // What is under way has been cut: this waits until nothing is.
      pending_.clear();
      ahead_.reset();
    }
    stage_.store(Stage::kNone, std::memory_order_relaxed);
    return status;
  }

 private:
  enum class Stage { kNone, kWithin, kBetween };

  struct Running {
    Operation operation;
    StagePlan plan;
    size_t begun = 0;  // Chunks, from the first.

    bool all_begun() const { return begun == plan.chunks.size(); }
  };
  // A chunk that has begun and is not at its end.
  struct Pending {
    uint64_t operation;
    Chunk chunk;
    Slice slice;  // The operation's.
    const Buffer* scratch;
    std::unique_ptr<Work> across;
  };

  std::unique_ptr<Running> Plan(const Operation& operation) const {
    auto running = std::make_unique<Running>();
    running->operation = operation;
    running->plan = PlanStages(layout_, rank_, operation);
    if (running->plan.zero_others) {
      ZeroOthers(operation.slice, rank_, layout_.size());
    }
    return running;
  }

  // The order of what is started on each side is fixed by the plan, and by what
  // the ranks of the host agree upon, never by what happens to end first: all
  // ranks must have the same.
  Status RunOperation(const Operation& operation, MonoTime deadline) {
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

  // Starts the next chunk between the hosts, once it is reduced in this one.
  Status Begin(Running* running, uint64_t number, MonoTime deadline) {
    const Chunk& chunk = running->plan.chunks[running->begun++];
    for (const Operation& stage : chunk.before) {
      LOCKSTEP_RETURN_IF_ERROR(RunWithin(stage, deadline));
    }
    Pending next{number, chunk, running->operation.slice, nullptr, nullptr};
    if (chunk.across) {
      if (chunk.weight != 1) Scale(Reduced(next), chunk.weight);
      const Buffer* buffer = memory_.Between(running->operation.slice.buffer);
      if (!chunk.packed.empty()) {
        next.scratch = buffer = scratch_[scratch_turn_++ % scratch_.size()];
        Pack(next);
      }
      LOCKSTEP_ASSIGN_OR_RETURN(next.across,
                                StartAcross(*chunk.across, buffer));
    }
    pending_.push_back(std::move(next));
    return OkStatus();
  }

  // While the last chunks of `running` are between the hosts: one chunk of the
  // operation behind it, where every rank of this host has it by now.
  Status BeginAhead(const Running& running, uint64_t number,
                    MonoTime deadline) {
    if (!MayOverlap(layout_, running.operation)) return OkStatus();
    if (ahead_ == nullptr) {
      const std::optional<Operation> next = queue_->Next();
      const bool mine = next && MayOverlap(layout_, *next) &&
                        Apart(running.operation.slice, next->slice);
      LOCKSTEP_ASSIGN_OR_RETURN(const bool all,
                                Agree(running.operation, mine, deadline));
      if (!all) return OkStatus();
      if (!queue_->BeginNext()) {
        // Aborted since Next. The others of the host go on with that operation,
        // so what this rank would start there instead could only be refused.
        Cut();
        return linked_abort_->first();
      }
      ahead_ = Plan(*next);
    }
    if (ahead_->all_begun()) return OkStatus();
    return Begin(ahead_.get(), number, deadline);
  }

  // Whether all ranks of this host say so.
  StatusOr<bool> Agree(const Operation& running, bool mine, MonoTime deadline) {
    if (agreement_ == nullptr) return mine;  // It is alone there.
    auto* const word = static_cast<int32_t*>(agreement_->data);
    *word = mine ? 1 : 0;
    LOCKSTEP_RETURN_IF_ERROR(
        StartAndWait({.slice = {agreement_, 0, 1, DataType::kInt32},
                      .op = ReduceOp::kMin,
                      .part_of = WordsOf(running)},
                     deadline));
    return *word != 0;
  }

  Status FinishFirst(MonoTime deadline) {
    LOCKSTEP_RETURN_IF_ERROR(Finish(&pending_.front(), deadline));
    pending_.pop_front();
    return OkStatus();
  }

  // Of what goes between the hosts the pieces, side by side.
  static void Pack(const Pending& pending) {
    const size_t element = SizeOf(pending.slice.type);
    auto* to = static_cast<char*>(pending.scratch->data);
    for (const Piece& piece : pending.chunk.packed) {
      std::memcpy(to, At(pending.slice, piece), piece.count * element);
      to += piece.count * element;
    }
  }
  // What came of this host's piece, to its place.
  void Unpack(const Pending& pending) const {
    if (pending.scratch == nullptr) return;
    const Piece& own = pending.chunk.reduced;
    const size_t bytes = own.count * SizeOf(pending.slice.type);
    std::memcpy(
        At(pending.slice, own),
        static_cast<char*>(pending.scratch->data) + layout_.host[rank_] * bytes,
        bytes);
  }
  static Slice Reduced(const Pending& pending) {
    Slice reduced = pending.slice;
    reduced.offset = pending.chunk.reduced.offset;
    reduced.count = pending.chunk.reduced.count;
    return reduced;
  }
  static char* At(const Slice& slice, const Piece& piece) {
    return static_cast<char*>(slice.buffer->data) +
           piece.offset * SizeOf(slice.type);
  }

  StatusOr<std::unique_ptr<Work>> StartOn(const Side& side,
                                          const Operation& operation) {
    // What it looks the buffer up in grows when the user allocates.
    MutexLock lock(memory_.calls());
    return side.communicator->Start(operation);
  }

  StatusOr<std::unique_ptr<Work>> StartAcross(Operation operation,
                                              const Buffer* buffer) {
    operation.slice.buffer = buffer;
    auto work = StartOn(between_, operation);
    if (!work.ok()) return Fail(between_, work.status());
    return work;
  }

  // What RunNow does within a host, where it changes no threads; but the lock
  // must not be held while it waits.
  Status StartAndWait(const Operation& operation, MonoTime deadline) {
    stage_.store(Stage::kWithin, std::memory_order_relaxed);
    const auto work = StartOn(within_, operation);
    const Status status = work.ok() ? (*work)->Wait(deadline) : work.status();
    if (!status.ok()) return Fail(within_, status);
    return OkStatus();
  }

  Status Finish(Pending* pending, MonoTime deadline) {
    const Chunk& chunk = pending->chunk;
    if (pending->across) {
      stage_.store(Stage::kBetween, std::memory_order_relaxed);
      const Status status = pending->across->Wait(deadline);
      if (!status.ok()) return Fail(between_, status);
      pending->across.reset();
      Unpack(*pending);
      if (chunk.divide_by > 0) Divide(Reduced(*pending), chunk.divide_by);
    }
    if (!chunk.after) return OkStatus();
    return RunWithin(*chunk.after, deadline);
  }

  // Only before the hosts meet is a wait within a host the fault of who comes
  // last; after it, that of the network.
  Status RunWithin(Operation operation, MonoTime deadline) {
    operation.slice.buffer = memory_.Within(operation.slice.buffer);
    return StartAndWait(operation, deadline);
  }

  // The line of this host's leader, on all its ranks.
  StatusOr<std::string> LeadersLine(const std::string& mine,
                                    MonoTime deadline) {
    if (agreement_ == nullptr) return mine;  // It is alone there.
    auto* const text = static_cast<char*>(agreement_->data);
    std::memset(text, 0, kLineBytes);
    if (layout_.leader(rank_)) {
      std::memcpy(text, mine.data(), std::min(mine.size(), kLineBytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        StartAndWait({.kind = CollectiveKind::kBroadcast,
                      .slice = {agreement_, 0, kLineBytes, DataType::kUint8}},
                     deadline));
    return std::string(text, strnlen(text, kLineBytes));
  }

  // `line` is the same on all ranks.
  Status FollowBetween(const std::string& line, MonoTime deadline) {
    if (between_.communicator != nullptr &&
        between_.communicator->ReductionPlan() != line) {
      stage_.store(Stage::kBetween, std::memory_order_relaxed);
      const Status status = between_.communicator->FollowPlan(line, deadline);
      if (!status.ok()) return Fail(between_, status);
    }
    stage_.store(Stage::kNone, std::memory_order_relaxed);
    between_line_ = line;
    return OkStatus();
  }

  // What is still under way on the other side ends with it, so that nothing
  // touches the slice later and the peers there do not wait for this rank.
  // What this side says may only follow from the other's error.
  Status Fail(const Side& side, const Status& status) {
    linked_abort_->Break(LinkedAbort::From::kOutside,
                         Translate(status, side.ranks, layout_.size()));
    return linked_abort_->first();
  }

  const int rank_;
  bool plan_given_;
  // The plan of those that meet between the hosts, rank 0 among them.
  std::string between_line_;
  const HostLayout layout_;
  const std::unique_ptr<char[]> scratch_memory_;
  const Side within_;
  const Side between_;
  const std::shared_ptr<LinkedAbort> linked_abort_;
  StagedMemory memory_;
  // kLineBytes of `within_`; null where it is.
  const Buffer* const agreement_;
  // Of `between_`: one for each chunk that may be there. Empty where it is
  // null.
  const std::vector<const Buffer*> scratch_;
  uint64_t scratch_turn_ = 0;
  OperationQueue* queue_ = nullptr;

  // Of the thread in Execute: operations so far, chunks that have begun, of
  // this operation and perhaps the next, and that next one.
  uint64_t operations_ = 0;
  std::deque<Pending> pending_;
  std::unique_ptr<Running> ahead_;

  std::atomic<Stage> stage_ = Stage::kNone;
};

}  // namespace

Status Translate(const Status& status, const std::vector<int>& ranks,
                 int size) {
  if (status.ok() || absl::IsAborted(status)) return status;
  const Status translated(status.code(),
                          TranslateRanks(Message(status), ranks, size));
  std::vector<int> lost;
  for (const int rank : LostPeersOf(status)) {
    if (rank >= 0 && static_cast<size_t>(rank) < ranks.size()) {
      lost.push_back(ranks[rank]);
    }
  }
  const Status named = WithLostPeers(translated, lost);
  const std::string reason = ReasonOf(status);
  return reason.empty() ? named : WithReason(named, reason);
}

StatusOr<OwnMemory> AllocateOwn(const HostLayout& layout, const Side& within,
                                const Side& between) {
  OwnMemory own;
  if (within.communicator == nullptr) return own;
  LOCKSTEP_ASSIGN_OR_RETURN(own.agreement,
                            within.communicator->Allocate(kLineBytes));
  if (between.communicator == nullptr) return own;
  constexpr size_t kAlignment = 64;
  const size_t bytes = (MostPackedBytes(layout.hosts()) + kAlignment - 1) /
                       kAlignment * kAlignment;
  // Untouched until it is needed.
  own.memory.reset(new char[(kAhead + 1) * bytes + kAlignment]);
  const auto address = reinterpret_cast<uintptr_t>(own.memory.get());
  char* const begin =
      own.memory.get() + (kAlignment - address % kAlignment) % kAlignment;
  for (size_t i = 0; i <= kAhead; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Buffer* buffer,
        between.communicator->Register(begin + i * bytes, bytes));
    own.scratch.push_back(buffer);
  }
  return own;
}

std::unique_ptr<Transport> MakeTransport(TransportParts parts) {
  return std::make_unique<HierarchicalTransport>(std::move(parts));
}

}  // namespace lockstep::hierarchical
