#include "worker/collective/shm/shm_communicator.h"

#include <algorithm>
#include <vector>

#include "worker/collective/operation.h"
#include "worker/collective/shm/engine.h"
#include "worker/collective/shm/failure_detector.h"
#include "worker/collective/shm/rendezvous.h"

namespace lockstep::worker::collective::shm {
namespace {

using shm::Arena;
using shm::Engine;
using shm::FailureDetector;
using shm::Group;
using shm::Placement;

class ShmWork final : public Work {
 public:
  ShmWork(Engine* engine, uint64_t number)
      : engine_(*engine), number_(number) {}
  ~ShmWork() override {
    if (!engine_.Poll(number_)) (void)engine_.Wait(number_, MonoTime::max());
  }
  Status Wait(MonoTime deadline) override {
    return engine_.Wait(number_, deadline);
  }
  bool Poll() override { return engine_.Poll(number_); }

 private:
  Engine& engine_;
  const uint64_t number_;
};

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(const CommunicatorOptions& options, Group group,
                  const BrokenFunction& broken)
      : label_(options.label),
        rank_(options.rank),
        size_(options.size),
        group_(std::move(group)),
        arena_(&group_.members[rank_].segment),
        detector_(label_, rank_, &group_.members, broken),
        engine_(options, group_, &detector_) {}

  Status Watch() {
    return size_ == 1 ? OkStatus() : Annotate(detector_.Watch(), label_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "shm"; }
  ProgressMode progress() const override { return ProgressMode::kInline; }

  // Compared between ranks and generations, so nothing that changes no bit:
  // not what the processors can, nor how ranks wait.
  std::string Plan() const override {
    return fmt::format(
        "shm: up to {} KiB copied and reduced by each of {} ranks; above, in "
        "place, chunk by chunk, by the ranks that are free; private memory "
        "streamed in blocks, each rank reducing its part",
        shm::kSmallBytes >> 10, size_);
  }

  // How many ranks there are is all that a sum's bits depend on.
  std::string ReductionPlan() const override {
    return fmt::format("shm ranks={}", size_);
  }

  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    auto known = std::make_unique<Known>();
    LOCKSTEP_ASSIGN_OR_RETURN(known->place,
                              arena_.Allocate(bytes, &known->buffer.bytes));
    known->buffer.data = group_.members[rank_].segment.At(known->place);
    known->buffer.kind = MemoryKind::kShared;
    buffers_.push_back(std::move(known));
    return &buffers_.back()->buffer;
  }

  StatusOr<const Buffer*> Register(void* data, size_t bytes) override {
    if (data == nullptr) {
      return InvalidArgument("{}: there is no memory to register", label_);
    }
    auto known = std::make_unique<Known>();
    known->buffer.data = data;
    known->buffer.bytes = bytes;
    known->is_private = true;
    LOCKSTEP_RETURN_IF_ERROR(group_.members[rank_].segment.Populate(
        shm::kStagePlace, shm::kStageBytes));
    buffers_.push_back(std::move(known));
    return &buffers_.back()->buffer;
  }

  StatusOr<const Buffer*> AnyMemory() override {
    if (any_ == nullptr) {
      const Buffer all = AnyHostMemory();
      LOCKSTEP_ASSIGN_OR_RETURN(any_, Register(all.data, all.bytes));
    }
    return any_;
  }

  bool HasAllToAll() const override { return true; }
  std::optional<PeerWait> CurrentWait() const override {
    return engine_.current_wait();
  }

  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    if (stream != nullptr) {
      return InvalidArgument("{}: host memory has no stream", label_);
    }
    Placement placement;
    if (operation.kind != CollectiveKind::kBarrier) {
      const Known* const known = Find(operation.slice.buffer);
      if (known == nullptr) {
        return InvalidArgument("{}: the buffer is not this communicator's",
                               label_);
      }
      LOCKSTEP_RETURN_IF_ERROR(CheckOperation(operation, size_));
      LOCKSTEP_ASSIGN_OR_RETURN(placement, Place(*known, operation.slice));
      if (operation.kind == CollectiveKind::kAllToAll) {
        LOCKSTEP_RETURN_IF_ERROR(CheckCounts(operation, rank_));
        // Wherever the parts are, peers see them in the stage.
        placement.is_private = true;
      }
    } else {
      LOCKSTEP_RETURN_IF_ERROR(CheckOperation(operation, size_));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t number,
                              engine_.Start(operation, placement));
    return std::make_unique<ShmWork>(&engine_, number);
  }

  void Abort(std::string_view reason) override {
    detector_.Break(Aborted("{}: {}", label_, reason));
  }

 private:
  struct Known {
    Buffer buffer;
    bool is_private = false;
    uint64_t place = 0;  // in the segment, unless private
  };

  const Known* Find(const Buffer* buffer) const {
    for (const auto& known : buffers_) {
      if (&known->buffer == buffer) return known.get();
    }
    return nullptr;
  }

  StatusOr<Placement> Place(const Known& known, const Slice& slice) const {
    const size_t element = SizeOf(slice.type);
    const size_t first = slice.offset * element;
    Placement placement;
    placement.is_private = known.is_private;
    placement.local = static_cast<unsigned char*>(known.buffer.data) + first;
    const auto address = reinterpret_cast<uintptr_t>(placement.local);
    if (address % element != 0) {
      return InvalidArgument("{}: memory at {:#x} is not aligned to {}", label_,
                             address, Name(slice.type));
    }
    if (!known.is_private) placement.place = known.place + first;
    return placement;
  }

  const std::string label_;
  const int rank_;
  const int size_;
  Group group_;
  Arena arena_;
  FailureDetector detector_;
  Engine engine_;
  std::vector<std::unique_ptr<Known>> buffers_;
  const Buffer* any_ = nullptr;  // AnyMemory's
};

}  // namespace

StatusOr<std::unique_ptr<Communicator>> FormShm(
    const CommunicatorOptions& options, const BrokenFunction& broken) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("{}: rank {} is out of range for {} ranks",
                           options.label, options.rank, options.size);
  }
  if (options.size > shm::kMaxRanks) {
    return InvalidArgument("{}: backend shm is for up to {} ranks, not {}",
                           options.label, shm::kMaxRanks, options.size);
  }
  if (options.size > 1 && options.rendezvous == nullptr) {
    return InvalidArgument("{}: {} ranks need a rendezvous store",
                           options.label, options.size);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Group group, shm::FormGroup(options));
  auto communicator =
      std::make_unique<ShmCommunicator>(options, std::move(group), broken);
  LOCKSTEP_RETURN_IF_ERROR(communicator->Watch());
  return communicator;
}

}  // namespace lockstep::worker::collective::shm
