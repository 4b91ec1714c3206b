#include "worker/collective/nccl/nccl_communicator.h"

#include <cstring>
#include <thread>
#include <utility>

#include "worker/collective/nccl/nccl_engine.h"
#include "worker/collective/operation.h"

namespace lockstep::worker::collective::nccl {
namespace {

constexpr char kIdKey[] = "nccl/id";

class NcclWork final : public Work {
 public:
  NcclWork(std::shared_ptr<NcclEngine> engine, std::shared_ptr<NcclTask> task)
      : engine_(std::move(engine)), task_(std::move(task)) {}
  ~NcclWork() override { (void)engine_->queue()->WaitForEnd(task_.get()); }

  Status Wait(MonoTime deadline) override {
    return engine_->queue()->Wait(task_.get(), deadline);
  }
  bool Poll() override { return engine_->queue()->IsDone(task_.get()); }
  std::optional<Span> ran() const override {
    return engine_->queue()->Ran(*task_);
  }

 private:
  const std::shared_ptr<NcclEngine> engine_;
  const std::shared_ptr<NcclTask> task_;
};

class NcclCommunicator final : public Communicator, private DeviceMemory {
 public:
  NcclCommunicator(const NcclEngineOptions& options, const GpuApi& api,
                   std::shared_ptr<NcclKeptMemory> kept)
      : label_(options.label),
        rank_(options.rank),
        size_(options.size),
        engine_(std::make_shared<NcclEngine>(options, api, std::move(kept))),
        thread_([engine = engine_] { NcclEngine::Run(engine); }) {}

  ~NcclCommunicator() override {
    if (engine_->queue()->Stop()) {
      thread_.join();
    } else {
      thread_.detach();  // It holds the engine, and may never end.
    }
  }

  Status WaitUntilFormed() { return engine_->queue()->WaitUntilFormed(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "nccl"; }
  ProgressMode progress() const override { return ProgressMode::kStream; }

  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    return engine_->Allocate(bytes, MemoryKind::kHost);
  }
  StatusOr<const Buffer*> AllocateOnDevice(size_t bytes) override {
    return engine_->Allocate(bytes, MemoryKind::kDevice);
  }
  DeviceMemory* device_memory() override { return this; }
  void Keep(const Buffer* buffer) override { engine_->Keep(buffer); }
  StatusOr<const Buffer*> AllocateAgain(const Buffer& before) override {
    return engine_->AllocateAgain(before);
  }

  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    if (operation.kind != CollectiveKind::kBarrier) {
      LOCKSTEP_RETURN_IF_ERROR(CheckOwned(operation.slice.buffer));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckOperation(operation, size_));
    if (operation.kind == CollectiveKind::kAllToAll) {
      return Unimplemented("{}: backend nccl has no all-to-all", label_);
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckReduction(operation));
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto task, engine_->Push(operation, static_cast<cudaStream_t>(stream)));
    return std::make_unique<NcclWork>(engine_, std::move(task));
  }

  void Abort(std::string_view reason) override {
    engine_->queue()->Break(Aborted("{}: {}", label_, reason));
  }

 private:
  Status Clear(const Slice& slice, Stream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckSlice(slice, MemoryKind::kDevice));
    LOCKSTEP_RETURN_IF_ERROR(CheckStream("cleared", stream));
    return engine_->Clear(slice, static_cast<cudaStream_t>(stream));
  }

  Status Add(const Slice& to, const Slice& from, Stream stream) override {
    for (const Slice* const slice : {&to, &from}) {
      LOCKSTEP_RETURN_IF_ERROR(CheckSlice(*slice, MemoryKind::kDevice));
      if (slice->type != DataType::kFloat32 || slice->count != to.count) {
        return InvalidArgument(
            "{}: float32 elements are added to as many: not {} {} to {} {}",
            label_, from.count, Name(from.type), to.count, Name(to.type));
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckStream("added up", stream));
    return engine_->Add(to, from, static_cast<cudaStream_t>(stream));
  }

  StatusOr<std::unique_ptr<Work>> StartSumOfSquares(const Slice& slice,
                                                    const Slice& result,
                                                    Stream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckSlice(slice, MemoryKind::kDevice));
    LOCKSTEP_RETURN_IF_ERROR(CheckSlice(result, MemoryKind::kHost));
    if (slice.type != DataType::kFloat32 || result.type != DataType::kFloat64 ||
        result.count != 1) {
      return InvalidArgument(
          "{}: squares of float32 are added up into one float64, not those of "
          "{} into {} {}",
          label_, Name(slice.type), result.count, Name(result.type));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto task, engine_->PushSumOfSquares(
                       slice, result, static_cast<cudaStream_t>(stream)));
    return std::make_unique<NcclWork>(engine_, std::move(task));
  }

  Status CopyToHost(void* host, const void* device, size_t bytes,
                    Stream stream) override {
    return Copy(host, device, bytes, cudaMemcpyDeviceToHost, stream);
  }
  Status CopyToDevice(void* device, const void* host, size_t bytes,
                      Stream stream) override {
    return Copy(device, host, bytes, cudaMemcpyHostToDevice, stream);
  }
  Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
              Stream stream) {
    return engine_->Copy(to, from, bytes, kind,
                         static_cast<cudaStream_t>(stream));
  }

  Status CheckStream(std::string_view what, Stream stream) const {
    if (stream != nullptr) return OkStatus();
    return InvalidArgument(
        "{}: memory is {} on a stream; the default one is cudaStreamLegacy, "
        "not null",
        label_, what);
  }
  Status CheckOwned(const Buffer* buffer) const {
    if (engine_->Owns(buffer)) return OkStatus();
    return InvalidArgument("{}: the buffer is not this communicator's", label_);
  }
  Status CheckSlice(const Slice& slice, MemoryKind kind) const {
    LOCKSTEP_RETURN_IF_ERROR(CheckOwned(slice.buffer));
    LOCKSTEP_RETURN_IF_ERROR(CheckOperation({.slice = slice}, size_));
    if (slice.buffer->kind == kind) return OkStatus();
    return InvalidArgument(
        "{}: the buffer is {} memory, not {}", label_,
        kind == MemoryKind::kDevice ? "the host's" : "the device's",
        kind == MemoryKind::kDevice ? "the device's" : "the host's");
  }

  static Status CheckReduction(const Operation& operation) {
    const bool reduces = operation.kind == CollectiveKind::kAllReduce ||
                         operation.kind == CollectiveKind::kReduceScatter;
    const DataType type = operation.slice.type;
    if (type == DataType::kInt16) {
      return InvalidArgument("backend nccl has no int16");
    }
    // A mean of integers is refused by the operation's own check.
    const bool least_or_most =
        operation.op == ReduceOp::kMin || operation.op == ReduceOp::kMax;
    if (!reduces || !least_or_most || !IsFloat(type)) return OkStatus();
    return InvalidArgument(
        "backend nccl takes no minimum or maximum of {}: a NaN could be lost",
        Name(type));
  }

  const std::string label_;
  const int rank_;
  const int size_;
  const std::shared_ptr<NcclEngine> engine_;
  std::thread thread_;
};

// Rank 0 makes it, fresh for this generation; it holds the address at which
// NCCL meets, and a random number.
StatusOr<ncclUniqueId> ExchangeId(const CommunicatorOptions& options,
                                  const GpuApi& api) {
  ncclUniqueId id;
  if (options.rank == 0) {
    const ncclResult_t result = api.nccl.get_unique_id(&id);
    if (result != ncclSuccess) {
      return Internal("{}: NCCL gives no unique id: {}", options.label,
                      api.nccl.describe(result));
    }
    if (options.size > 1) {
      LOCKSTEP_RETURN_IF_ERROR(options.rendezvous->Put(
          kIdKey, std::string_view(id.internal, sizeof(id.internal))));
    }
    return id;
  }
  auto bytes = options.rendezvous->Get(kIdKey, options.forming_deadline);
  if (!bytes.ok()) {
    return Annotate(bytes.status(),
                    fmt::format("{}: waiting for rank 0's id", options.label));
  }
  if (bytes->size() != sizeof(id.internal)) {
    return InvalidArgument(
        "{}: rank 0 wrote an id of {} bytes; those of NCCL have {}",
        options.label, bytes->size(), sizeof(id.internal));
  }
  std::memcpy(id.internal, bytes->data(), sizeof(id.internal));
  return id;
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> FormNccl(
    const CommunicatorOptions& options, const GpuApi& api) {
  const std::shared_ptr<NcclKeptMemory> kept =
      NcclKeptMemory::Of(options.addresses, api.cuda);
  if (kept != nullptr && !kept->Begin()) {
    return Internal(
        "{}: the GPU has not stopped since the communicator before: only the "
        "end of this process frees it",
        options.label);
  }
  const auto id = ExchangeId(options, api);
  if (!id.ok()) {
    if (kept != nullptr) kept->End({});
    return id.status();
  }
  auto communicator = std::make_unique<NcclCommunicator>(
      NcclEngineOptions{.rank = options.rank,
                        .size = options.size,
                        .device = options.device,
                        .label = options.label,
                        .operation_timeout = options.operation_timeout,
                        .abort_timeout = options.abort_timeout,
                        .forming_deadline = options.forming_deadline,
                        .id = *id,
                        .cancelled = options.cancelled},
      api, kept);
  LOCKSTEP_RETURN_IF_ERROR(communicator->WaitUntilFormed());
  return communicator;
}

}  // namespace lockstep::worker::collective::nccl
