// The gloo backend: a module (module.h) over Debian's libgloo.
//
// All-reduce, all-gather, broadcast and barrier are Gloo's; reduce-scatter is
// a direct exchange, because Gloo's own allocates and connects anew for each
// call. All of them combine in an order fixed by the ranks: two runs give
// equal bits, and each element is reduced by one rank only, so that all ranks
// hold the same bits.
//
// Before each operation a rank tells the next one what it has started
// (gloo_words.h), and sees what the one before has: a difference anywhere is
// seen by two neighbours of the ring.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include <exception>
#include <new>
#include <utility>

#include "worker/collective/communicator.h"
#include "worker/collective/gloo_mesh.h"
#include "worker/collective/gloo_words.h"
#include "worker/collective/module.h"
#include "worker/collective/operation.h"
#include "worker/collective/reduce.h"
#include "worker/collective/threaded_communicator.h"

namespace lockstep {
namespace {

// 0x01 to 0x08 are Gloo's collectives (gloo/types.h).
constexpr uint64_t kReduceScatterSlot = uint64_t{0x40} << 56;
constexpr uint64_t kWordsSlot = uint64_t{0x41} << 56;

class GlooTransport final : public Transport {
 public:
  GlooTransport(std::shared_ptr<GlooMesh> mesh)
      : mesh_(std::move(mesh)), context_(mesh_) {}

  std::string_view name() const override { return "gloo"; }

  Status Check(const Operation& operation) const override {
    const bool reduces = operation.kind == CollectiveKind::kAllReduce ||
                         operation.kind == CollectiveKind::kReduceScatter;
    if (!reduces ||
        ReduceFunctionFor(operation.slice.type, operation.op) != nullptr) {
      return OkStatus();
    }
    return InvalidArgument(
        "backend gloo does not reduce {}: it would round at every hop; reduce "
        "in float32",
        Name(operation.slice.type));
  }

  Status Execute(const Operation& operation, MonoTime deadline) override {
    const bool empty = operation.kind != CollectiveKind::kBarrier &&
                       operation.slice.count == 0;
    if (mesh_->size == 1) return OkStatus();
    PeerStates* const peers = mesh_->peers();
    peers->set_deadline(deadline);
    peers->failed = -1;
    ++sequence_;
    const GlooWords words = GlooWordsOf(operation, sequence_);
    tag_ = GlooTag(words);
    std::string what;
    try {
      LOCKSTEP_RETURN_IF_ERROR(Compare(words));
      if (!empty) Dispatch(operation);
      return OkStatus();
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("{}: no memory", Describe(operation));
    } catch (const std::exception& e) {
      what = e.what();
    } catch (...) {
      what = "unknown exception";
    }
    return Explain(operation, deadline, what);
  }

  void Cut() override { mesh_->Cut(); }

  std::string Waiting() const override {
    const int peer = mesh_->peers()->waiting_for.load();
    return peer < 0 ? "" : fmt::format("waiting for rank {}", peer);
  }

 private:
  Status Explain(const Operation& operation, MonoTime deadline,
                 const std::string& what) {
    const int peer = mesh_->peers()->failed;
    if (mesh_->peers()->IsCut()) {
      return Aborted("{} was cut", Describe(operation));
    }
    if (MonotonicNow() >= deadline) {
      return DeadlineExceeded("{} did not end in time, waiting for rank {}",
                              Describe(operation), peer);
    }
    if (peer >= 0) {
      return Unavailable("{}: the connection to rank {} is lost ({})",
                         Describe(operation), peer, what);
    }
    return Internal("{}: {}", Describe(operation), what);
  }

  // FailedPrecondition names both sides.
  Status Compare(const GlooWords& words) {
    const int size = mesh_->size;
    const int next = (mesh_->rank + 1) % size;
    const int previous = (mesh_->rank + size - 1) % size;
    GlooWords ours = words;
    GlooWords theirs;
    const auto to = context_->createUnboundBuffer(&ours, sizeof(ours));
    const auto from = context_->createUnboundBuffer(&theirs, sizeof(theirs));
    const uint64_t slot = kWordsSlot | (uint64_t{sequence_} << 24);
    from->recv(previous, slot, 0, sizeof(theirs));
    to->send(next, slot, 0, sizeof(ours));
    // First, so that the next one is told, too.
    to->waitSend();
    from->waitRecv();
    if (theirs == ours) return OkStatus();
    return FailedPrecondition(
        "the ranks do not run the same operations: rank {} runs {}, and rank "
        "{} {}",
        mesh_->rank, lockstep::Describe(ours), previous,
        lockstep::Describe(theirs));
  }

  void Dispatch(const Operation& operation) {
    switch (operation.kind) {
      case CollectiveKind::kAllReduce:
        return AllReduce(operation);
      case CollectiveKind::kReduceScatter:
        return ReduceScatter(operation);
      case CollectiveKind::kAllGather: {
        gloo::AllgatherOptions options(context_);
        options.setOutput(Data(operation), BytesOf(operation));
        options.setTag(tag_);
        return gloo::allgather(options);
      }
      case CollectiveKind::kBroadcast: {
        gloo::BroadcastOptions options(context_);
        options.setOutput(Data(operation), BytesOf(operation));
        options.setRoot(operation.root);
        options.setTag(tag_);
        return gloo::broadcast(options);
      }
      case CollectiveKind::kBarrier: {
        gloo::BarrierOptions options(context_);
        options.setTag(tag_);
        return gloo::barrier(options);
      }
    }
  }

  void AllReduce(const Operation& operation) {
    gloo::AllreduceOptions options(context_);
    const Slice& slice = operation.slice;
    // Gloo reads only the size of this type.
    switch (SizeOf(slice.type)) {
      case 1:
        options.setOutput(Data(operation), slice.count);
        break;
      case 4:
        options.setOutput(reinterpret_cast<uint32_t*>(Data(operation)),
                          slice.count);
        break;
      default:
        options.setOutput(reinterpret_cast<uint64_t*>(Data(operation)),
                          slice.count);
    }
    options.setReduceFunction(ReduceFunctionFor(slice.type, operation.op));
    // The ring: 2 (n - 1) / n of the bytes on each link, any number of ranks.
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setTag(tag_);
    gloo::allreduce(options);
    if (operation.op == ReduceOp::kMean) {
      DivideForMean(slice.type, Data(operation), slice.count, mesh_->size);
    }
  }

  // In round k, rank r sends its own values of part r + k to the rank that
  // owns it and adds those of rank r - k to its part.
  void ReduceScatter(const Operation& operation) {
    const int size = mesh_->size;
    const int rank = mesh_->rank;
    const size_t bytes = BytesOf(operation);
    const size_t part = bytes / size;
    const ReduceFunction reduce =
        ReduceFunctionFor(operation.slice.type, operation.op);
    const uint64_t slot = kReduceScatterSlot | (uint64_t{tag_} << 24);
    std::unique_ptr<uint8_t[]> scratch(new uint8_t[part]);
    const auto from = context_->createUnboundBuffer(scratch.get(), part);
    const auto all = context_->createUnboundBuffer(Data(operation), bytes);
    uint8_t* const own = Data(operation) + rank * part;
    for (int k = 1; k < size; ++k) {
      const int owner = (rank + k) % size;
      from->recv((rank - k + size) % size, slot, 0, part);
      all->send(owner, slot, owner * part, part);
      from->waitRecv();
      reduce(own, own, scratch.get(),
             operation.slice.count / static_cast<size_t>(size));
      all->waitSend();
    }
    if (operation.op == ReduceOp::kMean) {
      DivideForMean(operation.slice.type, own, operation.slice.count / size,
                    size);
    }
  }

  static uint8_t* Data(const Operation& operation) {
    const Slice& slice = operation.slice;
    return static_cast<uint8_t*>(slice.buffer->data) +
           slice.offset * SizeOf(slice.type);
  }

  const std::shared_ptr<GlooMesh> mesh_;
  const std::shared_ptr<gloo::Context> context_;
  // Of the operation that runs; the same on every rank.
  uint32_t sequence_ = 0;
  uint32_t tag_ = 0;
};

StatusOr<std::unique_ptr<Communicator>> FormGloo(
    const CommunicatorOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto mesh, GlooMesh::Form(options));
  return MakeThreadedCommunicator(
      {.rank = options.rank,
       .size = options.size,
       .label = options.label,
       .operation_timeout = options.operation_timeout},
      std::make_unique<GlooTransport>(std::move(mesh)));
}

bool FormInto(const CommunicatorOptions* options, Communicator** communicator,
              Status* error) {
  try {
    auto formed = FormGloo(*options);
    if (!formed.ok()) {
      *error = formed.status();
      return false;
    }
    *communicator = formed->release();
    return true;
  } catch (const std::exception& e) {
    *error = Internal("{}: forming failed: {}", options->label, e.what());
    return false;
  }
}

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default")))
const lockstep_collective_module*
lockstep_collective_module_v1(void) {
  static const lockstep_collective_module kModule = {
      sizeof(lockstep_collective_module),
      kLockstepCollectiveAbi,
      kLockstepCollectiveToolchain,
      "gloo",
      nullptr,
      lockstep::FormInto};
  return &kModule;
}
