#include "worker/collective/nccl/nccl_comm.h"

#include <string>
#include <thread>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::nccl {
namespace {

ncclDataType_t TypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return ncclFloat32;
    case DataType::kFloat64:
      return ncclFloat64;
    case DataType::kFloat16:
      return ncclFloat16;
    case DataType::kBfloat16:
      return ncclBfloat16;
    case DataType::kInt32:
      return ncclInt32;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kUint8:
      return ncclUint8;
    case DataType::kInt8:
      return ncclInt8;
    case DataType::kInt16:
      break;
  }
  return ncclNumTypes;
}

ncclRedOp_t OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMean:
      return ncclAvg;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  return ncclSum;
}

}  // namespace

Status NcclComm::Init() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = options_.label.c_str();
  return StatusOf(
      api_.init(&comm_, options_.size, options_.id, options_.rank, &config),
      "forming with NCCL");
}

StatusOr<bool> NcclComm::Busy(std::string_view what) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = api_.get_async_error(comm_, &state);
  LOCKSTEP_RETURN_IF_ERROR(StatusOf(asked, what));
  if (state == ncclInProgress) return true;
  LOCKSTEP_RETURN_IF_ERROR(StatusOf(state, what));
  return false;
}

Status NcclComm::Launch(const Operation& operation, void* data, void* word,
                        cudaStream_t stream) {
  const Slice& slice = operation.slice;
  const ncclDataType_t type = TypeOf(slice.type);
  const ncclRedOp_t op = OpOf(operation.op);
  const size_t part = slice.count / options_.size;
  char* const own =
      static_cast<char*>(data) + options_.rank * part * SizeOf(slice.type);
  const auto call = [&] {
    switch (operation.kind) {
      case CollectiveKind::kAllReduce:
        return api_.all_reduce(data, data, slice.count, type, op, comm_,
                               stream);
      case CollectiveKind::kReduceScatter:
        return api_.reduce_scatter(data, own, part, type, op, comm_, stream);
      case CollectiveKind::kAllGather:
        return api_.all_gather(own, data, part, type, comm_, stream);
      case CollectiveKind::kBroadcast:
        return api_.broadcast(data, data, slice.count, type, operation.root,
                              comm_, stream);
      case CollectiveKind::kBarrier:
        return api_.all_reduce(word, word, 1, ncclInt32, ncclSum, comm_,
                               stream);
      case CollectiveKind::kAllToAll:
        break;
    }
    return ncclInternalError;
  };
  return StatusOf(call(), Describe(operation));
}

bool NcclComm::Revoke(MonoTime deadline) {
  if (api_.revoke == nullptr) return false;
  const ncclResult_t revoked = api_.revoke(comm_, NCCL_REVOKE_DEFAULT);
  if (revoked != ncclSuccess && revoked != ncclInProgress) return false;
  for (;;) {
    ncclResult_t state = ncclSuccess;
    if (api_.get_async_error(comm_, &state) != ncclSuccess) return false;
    if (state != ncclInProgress) return state == ncclSuccess;
    if (MonotonicNow() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

bool NcclComm::Finalize() {
  const ncclResult_t begun = api_.finalize(comm_);
  return begun == ncclSuccess || begun == ncclInProgress;
}

Status NcclComm::StatusOf(ncclResult_t result, std::string_view what) const {
  if (result == ncclSuccess || result == ncclInProgress) return OkStatus();
  const char* more = comm_ == nullptr ? nullptr : api_.last_error(comm_);
  const std::string text = fmt::format(
      "{}: {}: NCCL says: {}{}{}", options_.label, what, api_.describe(result),
      more != nullptr && *more != '\0' ? ": " : "",
      more == nullptr ? "" : more);
  // The two that a peer's end causes.
  if (result == ncclRemoteError || result == ncclSystemError) {
    return Unavailable("{} (a peer is gone, or the network)", text);
  }
  return Internal("{}", text);
}

}  // namespace lockstep::worker::collective::nccl
